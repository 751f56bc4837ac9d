// The service's part in workspaces that are not its own.
#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "launcher/service/service.hpp"
#include "policy/quote.hpp"

namespace belljar::service {
namespace {

using Json = nlohmann::ordered_json;

bool overlap(const std::string& one, const std::string& other) {
  return one == other || one.starts_with(other + '/') || other.starts_with(one + '/');
}

}  // namespace

Outcome<OpenedWorkspace> Service::find_place(const std::string& name) const {
  OpenedWorkspace opened = BELLJAR_TRY(find_ready(name));
  const auto adopted = adopted_.find(name);
  if (adopted == adopted_.end()) return opened;
  opened.directory = sys::UniqueFd(fcntl(adopted->second.directory.get(), F_DUPFD_CLOEXEC, 3));
  if (!opened.directory.valid()) return call_failed(errno, "duplicate a descriptor");
  return opened;
}

Outcome<void> Service::check_adoption(const std::string& name, const ExistingWorkspace& wanted,
                                      uid_t uid, bool chown) const {
  for (const auto& [other, adopted] : adopted_)
    if (other == name || overlap(adopted.path, wanted.path) ||
        (adopted.device == wanted.device && adopted.inode == wanted.inode))
      return refuse(Code::kExists, std::string(policy::in_quotes(wanted.path)) +
                                       " is in use by a session that works in " +
                                       std::string(policy::in_quotes(adopted.path)));
  if (overlap(workspaces_->root(), wanted.path))
    return refuse(Code::kRefused, "the workspaces of other sessions are there");
  if (wanted.owner == uid) return {};
  const std::string whose = std::string(policy::in_quotes(wanted.path)) + " belongs to uid " +
                            std::to_string(wanted.owner) + ", and the session has uid " +
                            std::to_string(uid);
  if (!chown) return refuse(Code::kRefused, whose + "; ask for owner \"chown\"");
  if (!pool_.privileged) return refuse(Code::kRefused, whose + ", which cannot be changed");
  return {};
}

Outcome<void> Service::hand_over_to(int directory, uid_t uid, std::function<void(Answer)> done) {
  Job job;
  sys::UniqueFd held(fcntl(directory, F_DUPFD_CLOEXEC, 3));
  if (!held.valid()) return call_failed(errno, "duplicate a descriptor");
  job.kept = {held.get()};
  OthersPlaces others;
  for (const auto& [name, adopted] : adopted_)
    if (adopted.directory.get() != directory) others.emplace_back(adopted.device, adopted.inode);
  job.work = [fd = held.get(), uid, gid = pool_.group_of(uid), others = std::move(others)] {
    keep_for_chown();
    return hand_over(fd, uid, gid, others);
  };
  job.owned.push_back(std::move(held));
  job.done = std::move(done);
  if (jobs_.add(std::move(job))) return {};
  return refuse(Code::kBusy, "too many requests wait already");
}

void Service::serve(std::uint64_t id, const Adopt& order, Descriptors) {
  const Outcome<OpenedWorkspace> home = find_ready(order.workspace);
  if (!home) return reply(id, home.error());
  Outcome<ExistingWorkspace> found = open_below(settings_.workspace_roots, order.path);
  if (!found) return reply(id, found.error());
  const uid_t uid = home->owner;
  const Outcome<void> may = check_adoption(order.workspace, *found, uid, order.chown);
  if (!may) return reply(id, may.error());
  const int directory = found->directory.get();
  const std::string answer = Json{{"ok", {{"path", order.path}}}}.dump();
  // Held from here on, so that nobody else can have it meanwhile.
  adopted_.emplace(order.workspace, *std::move(found));
  if (!order.chown || !pool_.privileged) return reply(id, answer);
  const auto done = [this, id, name = order.workspace, answer](Answer handed) {
    if (!handed.ok) adopted_.erase(name);
    reply(id, handed.ok ? answer : handed.body);
  };
  const Outcome<void> asked = hand_over_to(directory, uid, done);
  if (asked) return;
  adopted_.erase(order.workspace);
  reply(id, asked.error());
}

void Service::serve(std::uint64_t id, const Claim& order, Descriptors) {
  const Outcome<OpenedWorkspace> home = find_ready(order.workspace);
  if (!home) return reply(id, home.error());
  const auto adopted = adopted_.find(order.workspace);
  if (adopted == adopted_.end())
    return reply(id, Fault{Code::kInvalid, "the session works in no directory of the caller's", 0});
  if (!pool_.privileged) return reply(id, std::string(R"({"ok":{"changed":0,"left_out":0}})"));
  const auto done = [this, id](Answer handed) { reply(id, std::move(handed.body)); };
  const Outcome<void> asked = hand_over_to(adopted->second.directory.get(), home->owner, done);
  if (!asked) reply(id, asked.error());
}

void Service::serve(std::uint64_t id, const Gone&, Descriptors) {
  constexpr std::size_t kMost = 256;  // A message has its bound; the next answer has the rest.
  Json names = Json::array();
  for (const auto& [name, adopted] : adopted_)
    if (names.size() < kMost && adopted.gone()) names.push_back(name);
  reply(id, Json{{"ok", {{"workspaces", std::move(names)}}}}.dump());
}

}  // namespace belljar::service
