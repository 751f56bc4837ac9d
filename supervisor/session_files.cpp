// Files of a session's workspace: asked of the service, which works under the session's uid.
#include <algorithm>
#include <utility>

#include "policy/base64.hpp"
#include "supervisor/session_impl.hpp"

namespace belljar::supervisor {
namespace {

/// Of a list, as the service bounds it.
constexpr std::size_t kLargestBody = std::size_t{64} << 20;

std::string mode_text(std::uint32_t mode) {
  std::string text = "0000";
  for (std::size_t digit = 0; digit < 4; ++digit)
    text[3 - digit] = static_cast<char>('0' + (mode >> (3 * digit) & 7));
  return text;
}

// The mode is octal text, or a number.
std::uint32_t mode_of(const Json& object) {
  const std::optional<std::string> text = text_of(object, "mode");
  if (!text) return static_cast<std::uint32_t>(number_of(object, "mode").value_or(0));
  std::uint32_t mode = 0;
  for (const char digit : *text)
    if (digit >= '0' && digit <= '7') mode = mode << 3 | static_cast<std::uint32_t>(digit - '0');
  return mode & 07777;
}

Milliseconds modified_of(const Json& object) {
  return Milliseconds(static_cast<std::int64_t>(number_of(object, "modified_ms").value_or(0)));
}

std::optional<Entry> entry_of(const Json& json) {
  Entry entry;
  const std::optional<std::string> raw = text_of(json, "path_base64");
  const std::optional<std::string> path = raw ? policy::decode_base64(*raw) : text_of(json, "path");
  const std::optional<std::string> type = text_of(json, "type");
  if (!path || !type) return std::nullopt;
  entry.path = *path;
  entry.type = *type == "file"        ? Entry::Type::kFile
               : *type == "directory" ? Entry::Type::kDirectory
                                      : Entry::Type::kOther;
  entry.size = number_of(json, "size").value_or(0);
  entry.mode = mode_of(json);
  entry.modified = modified_of(json);
  if (const std::optional<std::string> content = text_of(json, "content_base64"))
    entry.content = policy::decode_base64(*content);
  entry.too_large = flag_of(json, "too_large");
  return entry;
}

Outcome<Listing> listing_of(std::string_view text, bool truncated) {
  const Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto entries = json.find("entries");
  if (!json.is_object() || entries == json.end() || !entries->is_array())
    return refuse(Code::kLost, "list: the launch service's answer is no list");
  Listing listing;
  listing.truncated = truncated;
  for (const Json& one : *entries) {
    std::optional<Entry> entry = entry_of(one);
    if (!entry) return refuse(Code::kLost, "list: an entry of the launch service's has no path");
    listing.entries.push_back(std::move(*entry));
  }
  return listing;
}

Json place_of(const std::string& workspace, const std::string& path) {
  Json members;
  members["workspace"] = workspace;
  // Names need not be UTF-8, which JSON must be.
  const bool plain = std::ranges::all_of(path, [](char byte) { return byte > 0; });
  members[plain ? "path" : "path_base64"] = plain ? path : policy::base64(path);
  return members;
}

}  // namespace

Awaitable<Outcome<Reply>> SessionImpl::file_work(Request request, Milliseconds limit) {
  const Outcome<void> alive = usable();
  BELLJAR_CO_TRY(alive);
  touch();
  co_return co_await core_->ask(std::move(request), limit);
}

Awaitable<Outcome<Listing>> SessionImpl::list(ListRequest request) {
  const std::shared_ptr<SessionImpl> self = this->self();
  Json members = place_of(spec_.id, request.path);
  members["depth"] = request.depth;
  members["content"] = request.content;
  members["total"] = request.total;
  members["skip"] = request.skip;
  Request order("list", std::move(members));
  Outcome<Reply> reply = co_await file_work(std::move(order));
  BELLJAR_CO_TRY(reply);
  if (reply->descriptors.size() != 1)
    co_return refuse(Code::kLost, "list: the launch service gave no list");
  const Outcome<std::string> text = read_memfd(reply->descriptors[0], kLargestBody);
  BELLJAR_CO_TRY(text);
  co_return listing_of(*text, flag_of(reply->ok, "truncated"));
}

Awaitable<Outcome<OpenFile>> SessionImpl::open(std::string path) {
  const std::shared_ptr<SessionImpl> self = this->self();
  Request order("open", place_of(spec_.id, path));
  Outcome<Reply> reply = co_await file_work(std::move(order));
  BELLJAR_CO_TRY(reply);
  if (reply->descriptors.size() != 1)
    co_return refuse(Code::kLost, "open: the launch service gave no descriptor");
  OpenFile file;
  file.descriptor = std::move(reply->descriptors[0]);
  file.size = number_of(reply->ok, "size").value_or(0);
  file.mode = mode_of(reply->ok);
  file.modified = modified_of(reply->ok);
  file.etag = text_of(reply->ok, "etag").value_or("");
  co_return file;
}

Awaitable<Outcome<Written>> SessionImpl::write(WriteRequest request, UniqueFd source) {
  const std::shared_ptr<SessionImpl> self = this->self();
  Json members = place_of(spec_.id, request.path);
  members["mode"] = mode_text(request.mode);
  if (!request.if_match.empty()) members["if_match"] = request.if_match;
  members["parents"] = request.parents;
  if (request.marked) members["end"] = "mark";
  Request order("write", std::move(members));
  order.descriptors.push_back(std::move(source));
  const Outcome<Reply> reply = co_await file_work(std::move(order), kTransferLimit);
  BELLJAR_CO_TRY(reply);
  Written written;
  written.size = number_of(reply->ok, "size").value_or(0);
  written.created = flag_of(reply->ok, "created");
  co_return written;
}

Awaitable<Outcome<void>> SessionImpl::claim() {
  const std::shared_ptr<SessionImpl> self = this->self();
  Json members;
  members["workspace"] = spec_.id;
  Request order("claim", std::move(members));
  const Outcome<Reply> reply = co_await file_work(std::move(order));
  BELLJAR_CO_TRY(reply);
  co_return Outcome<void>();
}

Awaitable<Outcome<void>> SessionImpl::remove(std::string path, Recursive recursive,
                                             std::string if_match) {
  const std::shared_ptr<SessionImpl> self = this->self();
  Json members = place_of(spec_.id, path);
  members["recursive"] = recursive == Recursive::kYes;
  if (!if_match.empty()) members["if_match"] = if_match;
  Request order("delete", std::move(members));
  const Outcome<Reply> reply = co_await file_work(std::move(order));
  BELLJAR_CO_TRY(reply);
  co_return Outcome<void>();
}

Awaitable<Outcome<void>> SessionImpl::archive(std::string path, Way way, UniqueFd pipe) {
  const std::shared_ptr<SessionImpl> self = this->self();
  Json members = place_of(spec_.id, path);
  members["way"] = way == Way::kOut ? "out" : "in";
  Request order("archive", std::move(members));
  order.descriptors.push_back(std::move(pipe));
  const Outcome<Reply> reply = co_await file_work(std::move(order), kTransferLimit);
  BELLJAR_CO_TRY(reply);
  co_return Outcome<void>();
}

}  // namespace belljar::supervisor
