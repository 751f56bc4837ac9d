#include "launcher/host.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <sstream>

#include "launcher/controls/control.hpp"
#include "launcher/sys/landlock.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"
#include "launcher/sys/resolve.hpp"
#include "launcher/sys/session_credentials.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> values;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (const char* equals = std::strchr(*entry, '='))
      values.try_emplace(std::string(static_cast<const char*>(*entry), equals), equals + 1);
  return values;
}

Result<std::vector<TopLevel>> top_level() {
  DIR* root = opendir("/");
  if (root == nullptr) return sys_failure(errno, "list /");
  std::vector<TopLevel> entries;
  while (const dirent* entry = readdir(root)) {
    const std::string name = std::string("/") + entry->d_name;
    if (name == "/." || name == "/..") continue;
    struct stat about {};
    unsigned char type = entry->d_type;
    if (type == DT_UNKNOWN && lstat(name.c_str(), &about) == 0)
      type = static_cast<unsigned char>(IFTODT(about.st_mode));
    if (type == DT_DIR) entries.push_back({name, std::nullopt});
    if (type != DT_LNK) continue;
    std::array<char, PATH_MAX> text{};
    const ssize_t length = readlinkat(dirfd(root), entry->d_name, text.data(), text.size());
    if (length > 0)
      entries.push_back({name, std::string(text.data(), static_cast<size_t>(length))});
  }
  closedir(root);
  std::sort(entries.begin(), entries.end(),
            [](const TopLevel& a, const TopLevel& b) { return a.name < b.name; });
  return entries;
}

std::string current_directory() {
  std::array<char, PATH_MAX> buffer{};
  // A directory that is gone or outside our root is reported as "(unreachable)/...".
  if (getcwd(buffer.data(), buffer.size()) == nullptr || buffer[0] != '/') return {};
  return buffer.data();
}

}  // namespace

Result<Access> access_as(const SessionIds& ids, const Host& host, const std::string& path,
                         int least) {
  sys::SessionCredentials session(host.uid, host.gid, host.capabilities);
  const bool other = ids.uid != host.uid || ids.gid != host.gid;
  if (host.privileged() && other) BELLJAR_CHECK(session.assume(ids.uid, ids.gid));
  // The change from uid 0 to another one has put them down already (man 7 capabilities).
  const bool cleared = host.privileged() && host.uid == 0 && ids.uid != 0;
  if (host.capabilities != 0 && !cleared) BELLJAR_CHECK(session.lower_capabilities());
  Access access = Access::kNone;
  if (faccessat(AT_FDCWD, path.c_str(), least, AT_EACCESS) == 0) access = Access::kRead;
  if (access == Access::kRead && faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0)
    access = Access::kWrite;
  BELLJAR_CHECK(session.leave());
  return access;
}

namespace {

/// The first directory from the top that the session may not pass on its way to `path`.
Result<std::string> blocked_by(const SessionIds& ids, const Host& host, const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    if (BELLJAR_TRY(access_as(ids, host, path.substr(0, end), X_OK)) == Access::kNone)
      return path.substr(0, end);
  return path;
}

}  // namespace

namespace {

std::vector<int> directory_descriptors(const policy::Io& io) {
  std::vector<int> inherited = io.keep;
  if (io.standard_input == policy::Stdio::kInherit) inherited.push_back(0);
  if (io.standard_output == policy::Stdio::kInherit) inherited.push_back(1);
  if (io.standard_error == policy::Stdio::kInherit) inherited.push_back(2);
  std::erase_if(inherited, [](int fd) {
    struct stat about {};
    return fstat(fd, &about) != 0 || !S_ISDIR(about.st_mode);
  });
  return inherited;
}

void observe_terminals(const policy::Io& io, Host& host) {
  if (io.tty == policy::Tty::kNone) return;
  for (int fd : {0, 1, 2}) {
    const auto settings = sys::terminal_settings(fd);
    if (!settings) continue;
    if (host.terminals.empty()) {
      host.terminal_settings = settings;
      host.terminal_size = sys::terminal_size(fd);
    }
    host.terminals.push_back(fd);
  }
}

/// Sources of binds with root's links replaced; those without links are not listed.
Result<std::map<std::string, std::string>> sources(const policy::Filesystem& files) {
  std::map<std::string, std::string> found;
  const auto add = [&found](const std::string& path, const std::string& where) -> Status {
    Result<std::string> resolved = sys::resolve_trusted(path);
    if (!resolved) {
      Error error = resolved.error();
      error.where = where;
      return fail(std::move(error));
    }
    if (*resolved != path) found[path] = std::move(*resolved);
    return {};
  };
  for (const auto& [target, mount] : files.mounts) {
    const std::string where = policy::member_path("filesystem.mounts", target);
    if (mount.type == policy::MountType::kBind && mount.source != "/")
      BELLJAR_CHECK(add(mount.source, where));
    for (const std::string& lower : mount.lower) BELLJAR_CHECK(add(lower, where + ".lower"));
    if (mount.upper.empty()) continue;
    BELLJAR_CHECK(add(mount.upper, where + ".upper"));
    BELLJAR_CHECK(add(mount.work, where + ".work"));
  }
  if (files.workspace && files.workspace->path != ".")
    BELLJAR_CHECK(add(files.workspace->path, "filesystem.workspace.path"));
  return found;
}

}  // namespace

namespace {

/// Upper and work directories that will be written to.
Result<std::map<std::string, WrittenDirectory>> written(const policy::Policy& policy,
                                                        const Host& host) {
  std::map<std::string, WrittenDirectory> found;
  for (const auto& [target, mount] : policy.filesystem.mounts) {
    if (mount.upper.empty() || mount.readonly) continue;
    const SessionIds ids = BELLJAR_TRY(session_ids(policy.identity, host));
    for (const std::string& path : {mount.upper, mount.work}) {
      WrittenDirectory& about = found[path];
      struct stat seen {};
      if (stat(path.c_str(), &seen) != 0) continue;
      about.exists = true;
      about.device = seen.st_dev;
      if (S_ISDIR(seen.st_mode)) about.access = BELLJAR_TRY(access_as(ids, host, path));
    }
  }
  return found;
}

/// What the session may do in its workspace, as its owner where that is mapped.
Status observe_workspace(const policy::Policy& policy, Host& host) {
  host.current_directory = current_directory();
  const std::string path = workspace_path(policy, host);
  if (path.empty()) return {};
  SessionIds ids = BELLJAR_TRY(session_ids(policy.identity, host));
  struct stat about {};
  if (policy.filesystem.workspace->idmap == policy::IdMapping::kOwner &&
      stat(path.c_str(), &about) == 0) {
    host.workspace_owner = {about.st_uid, about.st_gid};
    if (obstacle_to_mapping(host, ids).what.empty()) ids = *host.workspace_owner;
  }
  host.workspace_access = BELLJAR_TRY(access_as(ids, host, path));
  if (host.workspace_access != Access::kNone) return {};
  host.workspace_blocked_by = BELLJAR_TRY(blocked_by(ids, host, path));
  if (stat(path.c_str(), &about) != 0)
    host.workspace_kind = errno == ENOENT ? Host::PathKind::kAbsent : Host::PathKind::kDirectory;
  else if (!S_ISDIR(about.st_mode))
    host.workspace_kind = Host::PathKind::kOther;
  return {};
}

/// Without privileges of belljar's own, the maps are written by newuidmap and newgidmap.
Status observe_id_ranges(const policy::Identity& identity, Host& host) {
  const SessionIds ids = BELLJAR_TRY(session_ids(identity, host));
  const auto text = [](const char* path) { return sys::read_file(AT_FDCWD, path); };
  const std::vector<std::string> owners = sys::owner_names(text("/etc/passwd"), ids.uid);
  host.subordinate_uids = sys::ranges_of(text("/etc/subuid"), owners);
  host.subordinate_gids = sys::ranges_of(text("/etc/subgid"), owners);
  if (host.privileged()) return {};
  for (const char* name : {"newuidmap", "newgidmap"})
    if (const auto helper = sys::open_id_helper(name); !helper)
      host.id_helpers_refused = helper.error();
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
    host.id_helpers_refused =
        Error{ErrorKind::kRefused, EPERM,
              "newuidmap has no privileges for a caller with no_new_privs", "identity.ids",
              "start belljar without no_new_privs (in a container: no-new-privileges), or as root"};
  return {};
}

/// Where names are resolved, and what besides the servers is said of it.
Status observe_resolver(Host& host) {
  constexpr const char* kFile = "/etc/resolv.conf";
  if (access(kFile, F_OK) != 0) return {};
  host.resolver_file = BELLJAR_TRY(sys::resolve_trusted(kFile));
  std::istringstream lines(sys::read_file(AT_FDCWD, kFile));
  for (std::string line; std::getline(lines, line);)
    for (const char* kept : {"search ", "domain ", "options "})
      if (line.starts_with(kept)) host.resolver_options += line + "\n";
  return {};
}

}  // namespace

Result<Host> observe_host(const policy::Policy& policy) {
  Host host;
  for (int fd : policy.io.keep)
    if (fd == sys::proc_directory() || fcntl(fd, F_GETFD) < 0)
      host.absent_descriptors.push_back(fd);
  host.directory_descriptors = directory_descriptors(policy.io);
  observe_terminals(policy.io, host);
  host.uid = static_cast<uid_t>(getauxval(AT_EUID));
  host.gid = static_cast<gid_t>(getauxval(AT_EGID));
  host.groups = BELLJAR_TRY(sys::supplementary_groups());
  std::erase(host.groups, host.gid);
  // A plain user has none; one that holds some all the same needs them only for other ids.
  const bool other_ids = policy.identity.uid.from != policy::Id::From::kCaller ||
                         policy.identity.gid.from != policy::Id::From::kCaller;
  if (host.uid == 0 || other_ids) host.capabilities = BELLJAR_TRY(sys::effective_capabilities());
  if (policy.identity.ids) BELLJAR_CHECK(observe_id_ranges(policy.identity, host));
  host.environment = environment();
  if (policy.landlock.asks_for_something()) host.landlock_abi = sys::landlock_abi();
  host.sources = BELLJAR_TRY(sources(policy.filesystem));
  if (auto home = host.environment.find("HOME");
      home != host.environment.end() && home->second.starts_with("/"))
    host.home = home->second;
  // As the kernel names it: /home may be a link, and the current directory never leads through one.
  std::array<char, PATH_MAX> real{};
  const bool needs_home = policy.filesystem.home.kind == policy::HomeKind::kPrivate ||
                          policy.filesystem.workspace ||
                          policy.filesystem.hide.contains(std::string(policy::kHideHome));
  if (needs_home && !host.home.empty() && realpath(host.home.c_str(), real.data()) != nullptr)
    host.home = real.data();
  while (host.home.size() > 1 && host.home.ends_with("/")) host.home.pop_back();
  if (policy.filesystem.home.kind == policy::HomeKind::kPrivate && !host.home.empty())
    host.home_exists = access(host.home.c_str(), F_OK) == 0;
  if (const std::vector<std::string> needed = cgroup_controllers(policy.limits); !needed.empty())
    host.cgroups = sys::find_cgroup_places(needed);
  if (policy.filesystem.root == policy::RootKind::kHost) host.top_level = BELLJAR_TRY(top_level());
  if (policy.network.mode == policy::NetworkMode::kPrivate) BELLJAR_CHECK(observe_resolver(host));
  host.written = BELLJAR_TRY(written(policy, host));
  if (policy.filesystem.workspace) BELLJAR_CHECK(observe_workspace(policy, host));
  return host;
}

}  // namespace belljar::launcher
