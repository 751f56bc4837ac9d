#include "api/v1/leases.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "api/v1/body.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/starting.hpp"

namespace belljar::api {

using supervisor::Code;
using supervisor::Milliseconds;
using supervisor::Outcome;
using supervisor::Owner;

namespace {

/// How often it is looked whether who holds a lease is still there.
constexpr Milliseconds kGlance{500};
constexpr std::size_t kSmallBody = std::size_t{64} << 10;

std::string new_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";
  std::array<unsigned char, 20> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return {};
  std::string id = "l-";
  for (const unsigned char byte : random) id += kLetters[byte % kLetters.size()];
  return id;
}

/// What is wrong with a body that is no empty object: a lease has no members.
std::optional<Problem> check_empty(const Request& head, std::string body) {
  Request request = head;
  request.body = std::move(body);
  const auto tree = parse_body(request);
  if (!tree) return tree.error();
  std::vector<ProblemItem> problems;
  Members(*tree, "", problems).finish();
  if (problems.empty()) return std::nullopt;
  return invalid_body(std::move(problems));
}

/// {"lease": ID}, and a heartbeat now and then, for as long as the client holds the connection.
Awaitable<void> hold(const V1Context& context, Exchange& exchange) {
  const std::shared_ptr<supervisor::Clock> clock = context.supervisor->clock();
  Request& request = exchange.request();
  std::string body;
  for (bool more = true; more;) {
    const auto part = co_await exchange.read();
    if (!part) co_return;
    body += *part;
    more = !part->empty();
  }
  if (auto wrong = check_empty(request, std::move(body))) {
    Response refused = problem_response(request, *std::move(wrong));
    co_return co_await exchange.answer(std::move(refused));
  }
  const std::string id = context.leases->take(request.client, clock);
  struct Held {
    Held(std::shared_ptr<Leases> all, std::string which)
        : leases(std::move(all)), id(std::move(which)) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { leases->leave(id); }
    std::shared_ptr<Leases> leases;
    std::string id;
  } const held(context.leases, id);
  Response head;
  head.content_type = "application/x-ndjson";
  bool there = co_await exchange.begin(std::move(head), std::nullopt);
  std::string line = nlohmann::json{{"type", "lease"}, {"lease", id}}.dump() + '\n';
  if (there) there = co_await exchange.write(std::move(line));
  supervisor::Notifier pause(co_await boost::asio::this_coro::executor, clock);
  auto beat = clock->now() + context.options.heartbeat;
  while (there && !exchange.gone()) {
    co_await pause.wait_until(clock->now() + kGlance);
    if (clock->now() < beat) continue;
    beat = clock->now() + context.options.heartbeat;
    std::string heartbeat = "{\"type\":\"heartbeat\"}\n";
    there = co_await exchange.write(std::move(heartbeat));
  }
}

}  // namespace

std::string Leases::take(const std::string& client, std::shared_ptr<supervisor::Clock> clock) {
  std::string id = new_id();
  Lease lease;
  lease.client = client;
  lease.owner = std::make_shared<Owner>(std::move(clock));
  leases_.insert_or_assign(id, std::move(lease));
  return id;
}

void Leases::leave(const std::string& id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  found->second.owner->leave();
  leases_.erase(found);
}

std::shared_ptr<Owner> Leases::find(const std::string& id, const std::string& client) const {
  const auto found = leases_.find(id);
  return found != leases_.end() && found->second.client == client ? found->second.owner : nullptr;
}

Outcome<std::shared_ptr<Owner>> owner_of(const DieWith& wanted, const Request& request,
                                         const Leases& leases,
                                         const boost::asio::any_io_executor& executor,
                                         std::shared_ptr<supervisor::Clock> clock) {
  if (!wanted.lease.empty()) {
    auto owner = leases.find(wanted.lease, request.client);
    if (owner) return owner;
    return supervisor::refuse(Code::kNotFound, "there is no lease \"" + wanted.lease + "\"",
                              "hold one open with POST /v1/leases");
  }
  if (!wanted.client) return std::shared_ptr<Owner>();
  if (!request.peer.local || request.peer.pid <= 0)
    return supervisor::refuse(Code::kInvalid,
                              "die_with: \"client\" is for processes of this host that come over "
                              "the unix socket; others hold a lease open with POST /v1/leases, "
                              "and name it");
  UniqueFd pidfd;
  if (request.peer.process)
    pidfd = UniqueFd(::fcntl(request.peer.process->get(), F_DUPFD_CLOEXEC, 3));
  // Whoever has the connection now may be another, and has the number of none.
  pollfd ended{pidfd.get(), POLLIN, 0};
  if (!pidfd.valid() || ::poll(&ended, 1, 0) != 0)
    return supervisor::refuse(Code::kEnded, "the process that has connected has ended");
  if (request.gone && request.gone())
    return supervisor::refuse(Code::kEnded, "the client has hung up");
  return Owner::of_process(executor, std::move(clock), std::move(pidfd));
}

void add_lease_operations(Router& router, const V1Context& context) {
  Operation lease("holdLease", "POST", "/v1/leases");
  lease.body_limit = kSmallBody;
  lease.stream = [&context](Exchange& exchange) { return hold(context, exchange); };
  router.add(std::move(lease));
}

}  // namespace belljar::api
