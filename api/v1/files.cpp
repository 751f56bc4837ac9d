// /v1/sessions/{session}/files/{path}: what is in a workspace, as its session's uid may touch it:
// plain files of its own with one link, and directories. No link is ever followed.
//
// A path is bytes. "%2F" within a part, empty parts, "." and ".." are refused (400), names that are
// not UTF-8 are escaped as any other byte.
//
// GET of a file: its bytes; ETag, Range (206, 416), If-Range, If-None-Match (304).
// GET of a directory ("files" is the workspace itself; query: depth=1..64, 1):
//   {"path":"src","entries":[{"path":"src/a.py","type":"file","size":3,"mode":"0644",
//     "modified":RFC3339}],"truncated":false}
//   `type` is file, directory or other; `path` is from the workspace on, and in its place there is
//   `path_base64` where it is no UTF-8.
// PUT (query: mode=0644, 0600 without it; parents=true; If-Match): the body becomes the file, once
// all of it
//   is there; up to 1 GiB. {"path":"a.py","size":3}: 201 when it was not there, 200 when it was.
// DELETE (query: recursive=true; If-Match, of a file): 204.
// At most 16 files and archives are moved at once (503 `busy`).
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "api/v1/body.hpp"
#include "api/v1/media.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/transfer.hpp"
#include "policy/base64.hpp"
#include "policy/units.hpp"
#include "policy/utf8.hpp"
#include "supervisor/streams.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::Outcome;
using supervisor::Session;

constexpr std::size_t kMostFile = std::size_t{1} << 30;
constexpr std::size_t kSlice = std::size_t{64} << 10;
constexpr std::size_t kPathFrom = 4;  ///< Parts of the request's path before the file's.

/// Why a path names nothing in a workspace. A slash that is escaped would be another path once
/// unescaped.
std::optional<Problem> check_path(const Request& request) {
  for (std::size_t i = kPathFrom; i < request.path.size(); ++i) {
    const std::string& part = request.path[i];
    if (part.empty() || part == "." || part == ".." || part.find('/') != std::string::npos)
      return Problem(400, "malformed",
                     "the path has an empty part, \".\", \"..\" or an escaped slash");
  }
  return std::nullopt;
}

json entry_json(const supervisor::Entry& entry) {
  const bool text = policy::is_utf8(entry.path);
  json shown;
  shown[text ? "path" : "path_base64"] = text ? entry.path : policy::base64(entry.path);
  shown["type"] = entry.type == supervisor::Entry::Type::kFile        ? "file"
                  : entry.type == supervisor::Entry::Type::kDirectory ? "directory"
                                                                      : "other";
  shown["size"] = entry.size;
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", entry.mode & 07777);
  shown["mode"] = mode.data();
  shown["modified"] = time_text(std::chrono::system_clock::time_point(entry.modified));
  return shown;
}

Response listing_response(const std::string& path, const supervisor::Listing& listing) {
  const bool text = policy::is_utf8(path);
  json shown;
  shown[text ? "path" : "path_base64"] = text ? path : policy::base64(path);
  shown["entries"] = json::array();
  for (const supervisor::Entry& entry : listing.entries)
    shown["entries"].push_back(entry_json(entry));
  shown["truncated"] = listing.truncated;
  return json_response(200, shown);
}

// --- GET

/// The bytes [from, to) of a file that may change meanwhile: then the answer is cut.
Awaitable<void> send_file(Exchange& exchange, const UniqueFd& file, std::uint64_t from,
                          std::uint64_t to) {
  const bool silent = exchange.request().method == "HEAD";
  while (from < to && !silent) {
    std::string slice(static_cast<std::size_t>(std::min<std::uint64_t>(kSlice, to - from)), '\0');
    const ssize_t length =
        ::pread(file.get(), slice.data(), slice.size(), static_cast<off_t>(from));
    if (length <= 0) co_return;
    slice.resize(static_cast<std::size_t>(length));
    from += slice.size();
    const bool sent = co_await exchange.write(std::move(slice));
    if (!sent) co_return;
  }
  co_await exchange.finish();
}

/// Whether If-Match names this state of the file, or there is none (RFC 9110, 13.1.1).
bool is_wanted(const Request& request, const std::string& etag) {
  if (request.headers.count("if-match") == 0) return true;
  const std::string_view wanted = request.headers.find("if-match").value_or("");
  // A weak tag never matches here, and names_etag would let it.
  return wanted.find("W/") == std::string_view::npos && names_etag(wanted, etag);
}

/// Whether the range that is asked for is of this state of the file (RFC 9110, 13.1.5).
bool range_holds(const Request& request, const std::string& etag) {
  if (request.headers.count("if-range") == 0) return true;
  return request.headers.find("if-range") == '"' + etag + '"';
}

Awaitable<void> answer_file(Exchange& exchange, supervisor::OpenFile file) {
  Request& request = exchange.request();
  Response head;
  head.content_type = "application/octet-stream";
  head.headers.add("etag", '"' + file.etag + '"');
  head.headers.add("accept-ranges", "bytes");
  head.headers.add("x-content-type-options", "nosniff");
  if (!is_wanted(request, file.etag)) {
    Response refused = problem_response(
        request, Problem(412, "precondition", "the file is not the one that If-Match names"));
    co_return co_await exchange.answer(std::move(refused));
  }
  if (names_etag(request.headers.find("if-none-match").value_or(""), file.etag)) {
    head.status = 304;
    co_return co_await exchange.answer(std::move(head));
  }
  RangeWish range;
  if (range_holds(request, file.etag)) range = wanted_range(request, file.size);
  if (range.kind == RangeWish::Kind::kNone) {
    Response refused = problem_response(
        request, Problem(416, "range", "the file has " + std::to_string(file.size) + " bytes"));
    refused.headers.add("content-range", "bytes */" + std::to_string(file.size));
    co_return co_await exchange.answer(std::move(refused));
  }
  if (range.kind == RangeWish::Kind::kAll) range.to = file.size;
  if (range.kind == RangeWish::Kind::kPart) {
    head.status = 206;
    head.headers.add("content-range", content_range(range.from, range.to, file.size));
  }
  const bool begun = co_await exchange.begin(std::move(head), range.to - range.from);
  if (begun) co_await send_file(exchange, file.descriptor, range.from, range.to);
}

Awaitable<void> answer_list(Exchange& exchange, std::shared_ptr<Session> session, std::string path,
                            std::uint32_t depth, std::optional<supervisor::Failure> otherwise) {
  supervisor::ListRequest order(path);
  order.depth = depth;
  const Outcome<supervisor::Listing> listing = co_await session->list(std::move(order));
  Response response;
  if (listing)
    response = listing_response(path, *listing);
  else
    response = problem_response(exchange.request(), otherwise ? *otherwise : listing.error());
  co_await exchange.answer(std::move(response));
}

Awaitable<void> get_file(const V1Context& context, Exchange& exchange) {
  Request& request = exchange.request();
  const auto session = context.session(request);
  if (!session) co_return co_await exchange.answer(context.no_session(request));
  Query query(request.query);
  const auto depth = static_cast<std::uint32_t>(query.number("depth", 1, 64).value_or(1));
  auto problem = query.finish();
  if (!problem) problem = check_path(request);
  if (problem) co_return co_await exchange.answer(problem_response(request, *std::move(problem)));
  std::string path = request.captured[1];
  if (path.empty())
    co_return co_await answer_list(exchange, session, std::move(path), depth, std::nullopt);
  std::string copy = path;
  Outcome<supervisor::OpenFile> file = co_await session->open(std::move(copy));
  if (file) co_return co_await answer_file(exchange, *std::move(file));
  // A directory is no plain file; nor is a link, which is no directory either.
  if (file.error().code == supervisor::Code::kRefused)
    co_return co_await answer_list(exchange, session, std::move(path), depth, file.error());
  co_await exchange.answer(problem_response(request, file.error()));
}

// --- PUT and DELETE

/// The one ETag that If-Match names; empty where there is none.
tl::expected<std::string, Problem> wanted_etag(const Request& request) {
  if (request.headers.count("if-none-match") > 0)
    return tl::unexpected(Problem(400, "malformed", "If-None-Match is not understood here"));
  if (request.headers.count("if-match") == 0) return std::string();
  const std::string_view wanted = request.headers.find("if-match").value_or("");
  if (wanted.size() < 3 || wanted.front() != '"' || wanted.back() != '"' ||
      wanted.find(',') != std::string_view::npos)
    return tl::unexpected(Problem(400, "malformed", "If-Match has to name one strong ETag"));
  return std::string(wanted.substr(1, wanted.size() - 2));
}

std::optional<Problem> read_put(const Request& request, supervisor::WriteRequest& order) {
  if (auto problem = check_path(request)) return problem;
  if (order.path.empty() || request.trailing_slash)
    return Problem(400, "malformed", "the path names a directory");
  // RFC 9110, 14.5: taken for the whole, a part would replace what it is a part of.
  if (request.headers.count("content-range") > 0)
    return Problem(400, "malformed", "Content-Range is not understood here: send the whole file");
  Query query(request.query);
  const auto mode = query.text("mode");
  order.parents = query.boolean("parents").value_or(false);
  if (auto problem = query.finish()) return problem;
  if (mode) {
    const auto parsed = policy::parse_octal(*mode, 0777);
    if (!parsed) return invalid_body({{"?mode", "expected octal digits, up to 0777"}});
    order.mode = *parsed;
  }
  auto etag = wanted_etag(request);
  if (!etag) return etag.error();
  order.if_match = *std::move(etag);
  return std::nullopt;
}

Response written_response(Request& request, const std::string& path,
                          const Outcome<supervisor::Written>& written) {
  if (!written) return problem_response(request, written.error());
  const bool text = policy::is_utf8(path);
  json shown;
  shown[text ? "path" : "path_base64"] = text ? path : policy::base64(path);
  shown["size"] = written->size;
  return json_response(written->created ? 201 : 200, shown);
}

/// The service sees the mark, and takes the file for whole, only after the last byte of the body.
Awaitable<void> receive_file(const V1Context& context, Exchange& exchange,
                             std::shared_ptr<Session> session, supervisor::WriteRequest order) {
  Request& request = exchange.request();
  Outcome<supervisor::Pipe> pipe = supervisor::make_pipe();
  if (!pipe) co_return co_await exchange.answer(problem_response(request, pipe.error()));
  const auto executor = co_await asio::this_coro::executor;
  const std::string path = order.path;
  asio::posix::stream_descriptor to(executor, pipe->write_end.release());
  to.native_non_blocking(true);
  Beside<supervisor::Written> writing(executor, context.supervisor->clock());
  writing.start(executor, session->write(std::move(order), std::move(pipe->read_end)));
  const Copied copied = co_await copy_body(exchange, to);
  if (copied == Copied::kAll) {
    const std::string_view mark(&supervisor::kEndMark, 1);
    co_await write_all(to, mark);
  }
  to.close();
  const Outcome<supervisor::Written> written = co_await writing.outcome();
  if (copied == Copied::kNoSender) co_return;
  co_await exchange.answer(written_response(request, path, written));
}

Awaitable<void> put_file(const V1Context& context, std::shared_ptr<Transfers> transfers,
                         Exchange& exchange) {
  Request& request = exchange.request();
  const auto session = context.session(request);
  if (!session) co_return co_await exchange.answer(context.no_session(request));
  supervisor::WriteRequest order(request.captured[1]);
  order.marked = true;
  auto problem = read_put(request, order);
  if (problem) co_return co_await exchange.answer(problem_response(request, *std::move(problem)));
  const auto turn = transfers->take();
  if (!turn.admitted()) co_return co_await exchange.answer(Transfers::busy(request));
  const auto attachment = session->attach();
  co_await receive_file(context, exchange, session, std::move(order));
}

// --- DELETE

Awaitable<Response> delete_file(const V1Context& context, Request& request) {
  const auto session = context.session(request);
  if (!session) co_return context.no_session(request);
  Query query(request.query);
  const bool recursive = query.boolean("recursive").value_or(false);
  auto problem = query.finish();
  if (!problem) problem = check_path(request);
  if (!problem && request.captured[1].empty())
    problem = Problem(400, "malformed", "the workspace itself goes with its session");
  auto etag = wanted_etag(request);
  if (!problem && !etag) problem = etag.error();
  if (problem) co_return problem_response(request, *std::move(problem));
  std::string path = request.captured[1], if_match = *std::move(etag);
  const auto how = recursive ? Session::Recursive::kYes : Session::Recursive::kNo;
  const Outcome<void> removed = co_await session->remove(std::move(path), how, std::move(if_match));
  if (!removed) co_return problem_response(request, removed.error());
  co_return no_content();
}

}  // namespace

void add_file_operations(Router& router, const V1Context& context,
                         std::shared_ptr<Transfers> transfers) {
  const std::string path = "/v1/sessions/{session}/files/{path...}";
  Operation get("readFile", "GET", path);
  get.takes_query = true;
  get.stream = [&context](Exchange& exchange) { return get_file(context, exchange); };
  router.add(std::move(get));
  Operation put("writeFile", "PUT", path);
  put.takes_query = true;
  put.body_limit = kMostFile;
  put.stream = [&context, transfers](Exchange& exchange) {
    return put_file(context, transfers, exchange);
  };
  router.add(std::move(put));
  Operation remove("deleteFile", "DELETE", path);
  remove.takes_query = true;
  remove.answer = [&context](Request& request) { return delete_file(context, request); };
  router.add(std::move(remove));
}

}  // namespace belljar::api
