#include "launcher/service/file_work.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "launcher/service/fresh_file.hpp"
#include "launcher/service/helper_process.hpp"
#include "launcher/service/remove_tree.hpp"
#include "launcher/sys/raw.hpp"
#include "policy/json_tree.hpp"
#include "policy/quote.hpp"
#include "policy/units.hpp"

namespace belljar::service {
namespace {

using policy::in_quotes;
using sys::UniqueFd;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/// A source that says nothing for so long is given up.
constexpr std::chrono::seconds kPatience{25};

std::int64_t modified_ms(const struct stat& about) {
  return std::int64_t{about.st_mtim.tv_sec} * 1000 + about.st_mtim.tv_nsec / 1000000;
}

/// What a later write can say it means: any change of the file makes another.
std::string etag_of(const struct stat& about) {
  const std::int64_t modified =
      std::int64_t{about.st_mtim.tv_sec} * 1000000000 + about.st_mtim.tv_nsec;
  return std::to_string(about.st_ino) + "-" + std::to_string(about.st_size) + "-" +
         std::to_string(modified);
}

struct Copied {
  std::uint64_t size = 0;
  char last = 0;
};

/// Takes the mark off the end of a copy.
Outcome<std::uint64_t> take_mark(int target, const Copied& copied) {
  if (copied.size == 0 || copied.last != kEndMark)
    return refuse(Code::kInvalid, "the source was broken off");
  if (ftruncate(target, static_cast<off_t>(copied.size) - 1) != 0)
    return call_failed(errno, "truncate the file");
  return copied.size - 1;
}

/// Copies `source` to its end into `target`.
Outcome<Copied> copy_to_end(int source, int target) {
  Clock::time_point deadline = Clock::now() + kPatience;
  std::array<char, 65536> piece{};
  for (Copied copied;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd readable{source, POLLIN, 0};
    const int ready = left > 0 ? poll(&readable, 1, static_cast<int>(left)) : 0;
    if (ready == 0)
      return refuse(Code::kTimeout,
                    "nothing came from the source for " + std::to_string(kPatience.count()) + " s");
    const ssize_t got = read(source, piece.data(), piece.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return call_failed(errno, "read the source");
    if (got == 0) return copied;
    copied.size += static_cast<std::uint64_t>(got);
    copied.last = piece[static_cast<std::size_t>(got) - 1];
    deadline = Clock::now() + kPatience;
    if (copied.size > kLargestFile + 1)
      return refuse(Code::kTooLarge, "the source has more than " + policy::size_text(kLargestFile));
    const int error = write_all(target, {piece.data(), static_cast<std::size_t>(got)});
    if (error != 0) return call_failed(error, "write the file");
  }
}

/// What an order is about: the file that its path names, and which one it has to be.
struct Target {
  std::string path;
  std::string if_match;  ///< Empty: whatever is there.
  uid_t owner;
};

/// Whether what is called `name` now may be replaced or removed as `target`; `true` when there is
/// nothing.
Outcome<bool> check_target(int directory, const std::string& name, const Target& target) {
  struct stat about {};
  const bool exists = fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0;
  if (!exists && errno != ENOENT) return call_failed(errno, "look at " + in_quotes(target.path));
  if (exists && !is_plain(about, target.owner))
    return refuse(Code::kRefused, in_quotes(target.path) +
                                      " is not a regular file of the session's with a single link");
  if (!target.if_match.empty() && (!exists || etag_of(about) != target.if_match))
    return refuse(Code::kChanged, in_quotes(target.path) + " is not what if_match names");
  return !exists;
}

/// A name in `directory` that nothing has and nobody can guess.
std::string secret_name() {
  std::uint64_t random = 0;
  // So few bytes come whole or not at all (man 2 getrandom).
  if (getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) return {};
  return ".belljar-delete-" + std::to_string(random);
}

/// The name is taken away first, for one that the session does not know, and only what was taken
/// away with it is looked at and removed: whatever it puts in that place meanwhile stays.
Outcome<void> delete_matching(int directory, const Target& target) {
  const std::string name = last_part(target.path), aside = secret_name();
  // Most of what does not match need not be moved to find that out.
  BELLJAR_TRY(check_target(directory, name, target));
  if (aside.empty()) return call_failed(errno, "make up a name");
  if (renameat(directory, name.c_str(), directory, aside.c_str()) != 0) {
    if (errno == ENOENT) return refuse(Code::kChanged, in_quotes(target.path) + " is gone");
    return call_failed(errno, "take the name of " + in_quotes(target.path));
  }
  if (const Outcome<bool> same = check_target(directory, aside, target); !same) {
    // By now the session may have put another one there: then both stay.
    const long back = sys::raw(SYS_renameat2, directory, aside.c_str(), directory, name.c_str(),
                               static_cast<unsigned>(RENAME_NOREPLACE));
    if (back == 0) return tl::unexpected<Fault>(same.error());
    return refuse(same.error().code, same.error().message + "; what was there is now called " +
                                         in_quotes(aside) + " beside it");
  }
  if (unlinkat(directory, aside.c_str(), 0) != 0)
    return call_failed(errno, "delete " + in_quotes(target.path));
  return {};
}

// --- prepare
// --------------------------------------------------------------------------------------

struct Planned {
  std::string path;
  bool directory = false;
  mode_t mode = 0600;
  std::uint64_t size = 0;
};

Outcome<Planned> read_planned(const policy::Node& node) {
  using Kind = policy::Node::Kind;
  Planned planned;
  for (const policy::Member& member : node.members) {
    const policy::Node& value = member.value;
    if (member.key == "path" && value.kind == Kind::kString) {
      planned.path = value.text;
    } else if (member.key == "mode" && value.kind == Kind::kString &&
               policy::parse_octal(value.text, 0777)) {
      planned.mode = *policy::parse_octal(value.text, 0777);
    } else if (member.key == "size" && value.kind == Kind::kUnsigned) {
      planned.size = value.number;
    } else if (member.key == "directory" && value.kind == Kind::kBoolean && value.boolean) {
      planned.directory = true;
    } else {
      return refuse(Code::kInvalid,
                    "the body's header: wrong or unknown member " + in_quotes(member.key));
    }
  }
  if (planned.directory && node.find("mode") == nullptr) planned.mode = 0700;
  if (!is_inner_path(planned.path))
    return refuse(Code::kInvalid, "the body's header: path " + in_quotes(planned.path) +
                                      " is not relative, or has \".\", \"..\" or empty parts");
  const bool sized = node.find("size") != nullptr;
  if (sized == planned.directory)
    return refuse(Code::kInvalid, "the body's header: " + in_quotes(planned.path) +
                                      " must have either a size or \"directory\": true");
  return planned;
}

/// No path is there twice, and none is a file and another's parent.
Outcome<void> check_layout(const std::vector<Planned>& all) {
  std::set<std::string> files, directories;
  for (const Planned& planned : all)
    if (!(planned.directory ? directories : files).insert(planned.path).second)
      return refuse(Code::kInvalid, in_quotes(planned.path) + " is named twice");
  for (const Planned& planned : all) {
    if (planned.directory && files.contains(planned.path))
      return refuse(Code::kInvalid, in_quotes(planned.path) + " is named twice");
    for (std::size_t at = planned.path.find('/'); at != std::string::npos;
         at = planned.path.find('/', at + 1))
      if (files.contains(planned.path.substr(0, at)))
        return refuse(Code::kInvalid, in_quotes(planned.path.substr(0, at)) + " is a file, and " +
                                          in_quotes(planned.path) + " would be in it");
  }
  return {};
}

Outcome<std::vector<Planned>> read_header(std::string_view header, std::uint64_t contents) {
  policy::Findings findings;
  const auto tree = policy::parse_json(header, 0, policy::Comments::kRefused, findings);
  if (!tree || tree->kind != policy::Node::Kind::kArray || !findings.empty())
    return refuse(Code::kInvalid, "the body's first line is no JSON array");
  if (tree->elements.size() > kMostEntries)
    return refuse(Code::kTooLarge, "the body has more than 10000 entries");
  std::vector<Planned> all;
  for (const policy::Node& element : tree->elements) {
    all.push_back(BELLJAR_TRY(read_planned(element)));
    if (all.back().size > contents)
      return refuse(Code::kInvalid, "the body is shorter than its header says");
    contents -= all.back().size;
  }
  if (contents != 0) return refuse(Code::kInvalid, "the body is longer than its header says");
  BELLJAR_CHECK(check_layout(all));
  return all;
}

Outcome<void> make_planned(int workspace, const Planned& planned, std::string_view content) {
  const UniqueFd parent = BELLJAR_TRY(open_parent(workspace, planned.path, Parents::kMake));
  const std::string name = last_part(planned.path);
  if (planned.directory) {
    // It may have been made already, as another's parent.
    if (mkdirat(parent.get(), name.c_str(), planned.mode) == 0 || errno == EEXIST) return {};
    return call_failed(errno, "make the directory " + in_quotes(planned.path));
  }
  const UniqueFd file(openat(parent.get(), name.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, planned.mode));
  if (!file.valid()) return call_failed(errno, "make the file " + in_quotes(planned.path));
  const int error = write_all(file.get(), content);
  if (error != 0) return call_failed(error, "write the file " + in_quotes(planned.path));
  return {};
}

}  // namespace

Outcome<Finding> open_file(int workspace, uid_t owner, const Open& order) {
  OpenedFile opened = BELLJAR_TRY(open_plain(workspace, order.path, owner));
  const Json json{{"size", opened.about.st_size},
                  {"mode", opened.about.st_mode & 07777},
                  {"modified_ms", modified_ms(opened.about)},
                  {"inode", opened.about.st_ino},
                  {"etag", etag_of(opened.about)}};
  return Finding{json.dump(), std::move(opened.file)};
}

Outcome<Finding> write_file(int workspace, uid_t owner, const Write& order, int source) {
  const UniqueFd directory = BELLJAR_TRY(
      open_parent(workspace, order.path, order.parents ? Parents::kMake : Parents::kMustBe));
  const std::string name = last_part(order.path);
  const Target target{order.path, order.if_match, owner};
  BELLJAR_TRY(check_target(directory.get(), name, target));
  FreshFile fresh(directory.get(), order.mode);
  if (fresh.error() != 0)
    return call_failed(fresh.error(), "write beside " + in_quotes(order.path));
  const Copied copied = BELLJAR_TRY(copy_to_end(source, fresh.fd()));
  const std::uint64_t size =
      order.marked ? BELLJAR_TRY(take_mark(fresh.fd(), copied)) : copied.size;
  // The copy took its time.
  const bool created = BELLJAR_TRY(check_target(directory.get(), name, target));
  const int error = fresh.take_name(name);
  if (error != 0) return call_failed(error, "replace " + in_quotes(order.path));
  return Finding{Json{{"size", size}, {"created", created}}.dump(), {}};
}

Outcome<Finding> delete_file(int workspace, uid_t owner, const Delete& order) {
  const UniqueFd parent = BELLJAR_TRY(open_parent(workspace, order.path, Parents::kMustBe));
  if (!order.if_match.empty()) {
    BELLJAR_CHECK(delete_matching(parent.get(), {order.path, order.if_match, owner}));
    return Finding{};
  }
  const std::string name = last_part(order.path);
  int error = 0;
  if (order.recursive)
    error = remove_tree(parent.get(), name);
  else if (unlinkat(parent.get(), name.c_str(), 0) != 0 &&
           (errno != EISDIR || unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR) != 0))
    error = errno;
  if (error != 0) return call_failed(error, "delete " + in_quotes(order.path));
  return Finding{};
}

Outcome<Finding> fill_workspace(int workspace, int body, std::uint64_t size) {
  const std::string text = BELLJAR_TRY(read_whole(body, size));
  const std::size_t line = text.find('\n');
  if (line == std::string::npos) return refuse(Code::kInvalid, "the body has no header line");
  const std::vector<Planned> all =
      BELLJAR_TRY(read_header(std::string_view(text).substr(0, line), text.size() - line - 1));
  std::size_t at = line + 1;
  for (const Planned& planned : all) {
    BELLJAR_CHECK(
        make_planned(workspace, planned, std::string_view(text).substr(at, planned.size)));
    at += planned.size;
  }
  return Finding{};
}

Outcome<Finding> empty_workspace(int workspace) {
  return Finding{Json{{"left", empty_directory(workspace)}}.dump(), {}};
}

}  // namespace belljar::service
