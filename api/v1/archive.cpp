// /v1/sessions/{session}/archive: a workspace, or a directory of it (query: path=), as a tar (pax).
//
// GET: application/x-tar of directories and plain files; all else is left out. Cut short where
// something
//   fails in the middle.
// PUT: the body, a tar of directories and plain files (415 for another type than
// application/x-tar),
//   is unpacked as it comes: what comes before a failure is there. Up to 4 GiB. 204.
// At most 16 files and archives are moved at once (503 `busy`).
#include "api/v1/body.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/transfer.hpp"
#include "supervisor/streams.hpp"

namespace belljar::api {
namespace {

using supervisor::Outcome;
using supervisor::Session;

constexpr std::size_t kMostArchive = std::size_t{4} << 30;
constexpr std::size_t kSlice = std::size_t{64} << 10;
constexpr const char* kTar = "application/x-tar";

/// What comes out of a pipe until its end; the answer begins with its first byte. False: the peer
/// has gone.
Awaitable<bool> relay_tar(Exchange& exchange, asio::posix::stream_descriptor& from, bool& begun) {
  for (;;) {
    std::string slice(kSlice, '\0');
    const asio::mutable_buffer space(slice.data(), slice.size());
    const auto [error, size] = co_await from.async_read_some(space, supervisor::kAsTuple);
    if (error || size == 0) co_return true;
    slice.resize(size);
    if (!begun) {
      Response head;
      head.content_type = kTar;
      begun = true;
      const bool taken = co_await exchange.begin(std::move(head), std::nullopt);
      if (!taken) co_return false;
    }
    const bool sent = co_await exchange.write(std::move(slice));
    if (!sent) co_return false;
  }
}

Awaitable<void> send_archive(const V1Context& context, Exchange& exchange,
                             std::shared_ptr<Session> session, std::string path) {
  Request& request = exchange.request();
  Outcome<supervisor::Pipe> pipe = supervisor::make_pipe();
  if (!pipe) co_return co_await exchange.answer(problem_response(request, pipe.error()));
  const auto executor = co_await asio::this_coro::executor;
  asio::posix::stream_descriptor from(executor, pipe->read_end.release());
  Beside<void> archiving(executor, context.supervisor->clock());
  archiving.start(
      executor, session->archive(std::move(path), Session::Way::kOut, std::move(pipe->write_end)));
  bool begun = false;
  const bool taken = co_await relay_tar(exchange, from, begun);
  from.close();
  const Outcome<void> done = co_await archiving.outcome();
  if (!taken) co_return;
  if (!begun && !done) co_return co_await exchange.answer(problem_response(request, done.error()));
  if (done)
    co_await exchange.finish();
  else
    request.failure = done.error().error.what;
}

Awaitable<void> receive_archive(const V1Context& context, Exchange& exchange,
                                std::shared_ptr<Session> session, std::string path) {
  Request& request = exchange.request();
  Outcome<supervisor::Pipe> pipe = supervisor::make_pipe();
  if (!pipe) co_return co_await exchange.answer(problem_response(request, pipe.error()));
  const auto executor = co_await asio::this_coro::executor;
  asio::posix::stream_descriptor to(executor, pipe->write_end.release());
  to.native_non_blocking(true);
  Beside<void> unpacking(executor, context.supervisor->clock());
  unpacking.start(executor,
                  session->archive(std::move(path), Session::Way::kIn, std::move(pipe->read_end)));
  const Copied copied = co_await copy_body(exchange, to);
  to.close();
  const Outcome<void> done = co_await unpacking.outcome();
  if (copied == Copied::kNoSender) co_return;
  Response response = no_content();
  if (!done) response = problem_response(request, done.error());
  co_await exchange.answer(std::move(response));
}

/// The path of the directory, "" for the workspace.
std::optional<Problem> read_query(const Request& request, std::string& path) {
  Query query(request.query);
  path = query.text("path").value_or("");
  return query.finish();
}

Awaitable<void> archive(const V1Context& context, std::shared_ptr<Transfers> transfers,
                        Exchange& exchange) {
  Request& request = exchange.request();
  const auto session = context.session(request);
  if (!session) co_return co_await exchange.answer(context.no_session(request));
  std::string path;
  auto problem = read_query(request, path);
  const bool in = request.method == "PUT";
  if (!problem && in && request.headers.find("content-type") != kTar)
    problem = Problem(415, "unsupported_media_type", std::string("the body has to be a ") + kTar);
  if (problem) co_return co_await exchange.answer(problem_response(request, *std::move(problem)));
  const auto turn = transfers->take();
  if (!turn.admitted()) co_return co_await exchange.answer(Transfers::busy(request));
  const auto attachment = session->attach();
  if (in)
    co_await receive_archive(context, exchange, session, std::move(path));
  else
    co_await send_archive(context, exchange, session, std::move(path));
}

}  // namespace

void add_archive_operations(Router& router, const V1Context& context,
                            std::shared_ptr<Transfers> transfers) {
  const std::string path = "/v1/sessions/{session}/archive";
  Operation get("readArchive", "GET", path);
  get.takes_query = true;
  get.stream = [&context, transfers](Exchange& exchange) {
    return archive(context, transfers, exchange);
  };
  router.add(std::move(get));
  Operation put("writeArchive", "PUT", path);
  put.takes_query = true;
  put.body_limit = kMostArchive;
  put.stream = [&context, transfers](Exchange& exchange) {
    return archive(context, transfers, exchange);
  };
  router.add(std::move(put));
}

}  // namespace belljar::api
