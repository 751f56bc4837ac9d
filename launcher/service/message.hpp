// What comes over the service socket: closed schemas, read into values, and nothing believed.
//
// The other end may have been taken over: what is not written down in docs/launch-service.md is
// refused here, before anything acts on it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/service/fault.hpp"
#include "launcher/sys/terminal.hpp"

namespace belljar::service {

inline constexpr std::size_t kLargestMessage = std::size_t{64} << 10;
inline constexpr std::size_t kMostDescriptors = 8;
inline constexpr std::uint64_t kLargestBody = std::uint64_t{64} << 20;  ///< In a sealed memfd.
/// Of files within a list, which is JSON and has to fit into such a body.
inline constexpr std::uint64_t kMostContents = std::uint64_t{32} << 20;

struct Hello {};
struct Prepare {
  std::string workspace;
  uid_t uid = 0;
};
struct Remove {
  std::string workspace;
};
struct Launch {
  std::string session;
  uid_t uid = 0;
  std::string workspace;
  std::string policy;
  std::string digest;  ///< Empty: whatever it is.
  /// Comes along in place of a served one: the text of one JSON object (policy/inline_policy.hpp).
  std::optional<std::string> inline_policy;
  std::vector<std::string> settings;  ///< "path=value"
  std::map<std::string, std::string> variables;
  std::optional<std::vector<std::string>> argv;  ///< Absent: no command of its own.
  std::map<std::string, std::string> environment;
  std::string directory;
  std::optional<sys::TerminalSize> terminal;
};
struct List {
  std::string workspace, path;
  std::uint64_t depth = 0;
  std::uint64_t content = 0;  ///< So many bytes of a file, or none of it.
  std::uint64_t total = 0;    ///< Of all contents.
  std::vector<std::string> skip;
};
struct Open {
  std::string workspace, path;
};
/// Who sends a file through a pipe and dies in the middle closes it, too.
inline constexpr char kEndMark = '.';

struct Write {
  std::string workspace, path;
  mode_t mode = 0;
  std::string if_match;  ///< Empty: whatever is there.
  bool parents = false;
  bool marked = false;  ///< The source ends with kEndMark, or it was broken off.
};
struct Delete {
  std::string workspace, path;
  std::string if_match;  ///< Empty: whatever is there.
  bool recursive = false;
};
struct Archive {
  std::string workspace, path;
  bool into = false;  ///< Into the workspace.
};
/// A directory of the caller's becomes what a prepared workspace's session works in; the prepared
/// one is its home.
struct Adopt {
  std::string workspace, path;
  bool chown = false;  ///< It is handed over; otherwise it has to be the session's already.
};
/// What has been added to an adopted directory since is handed over.
struct Claim {
  std::string workspace;
};
/// Which adopted directories are gone.
struct Gone {};
struct Sweep {
  uid_t uid = 0;
};
struct Selftest {};

using Demand = std::variant<Hello, Prepare, Remove, Launch, List, Open, Write, Delete, Archive,
                            Adopt, Claim, Gone, Sweep, Selftest>;

struct Request {
  std::uint64_t id = 0;
  Demand demand;
};

/// A message that is no request. Without an id it ends the connection.
struct Unread {
  std::optional<std::uint64_t> id;
  Fault fault;
};

[[nodiscard]] tl::expected<Request, Unread> read_request(std::string_view text);

/// How many descriptors come with it.
[[nodiscard]] std::size_t descriptors_of(const Demand& demand);

/// 1 to 64 of A-Z, a-z, 0-9, _ and -.
[[nodiscard]] bool is_workspace_name(std::string_view name);

/// Whether `path` is relative, at most 4095 bytes, and without empty, "." and ".." parts.
[[nodiscard]] bool is_inner_path(std::string_view path);

/// `{"id":7,"ok":{...}}` of `{"ok":{...}}`.
[[nodiscard]] std::string answer_text(std::uint64_t id, std::string_view body);

/// `{"error":{...}}`
[[nodiscard]] std::string error_body(const Fault& fault);

}  // namespace belljar::service
