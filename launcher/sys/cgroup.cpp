#include "launcher/sys/cgroup.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <ctime>

#include "launcher/sys/place.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"

namespace belljar::sys {
namespace {

constexpr std::string_view kPrefix = "belljar-";
constexpr std::string_view kLeafSuffix = "-launcher";

// --- text ---------------------------------------------------------------------------------------

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

bool has_word(std::string_view list, char separator, std::string_view word) {
  const std::vector<std::string_view> words = split(list, separator);
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// "ID:CONTROLLERS:PATH" of /proc/PID/cgroup (man 7 cgroups).
struct Membership {
  std::string_view controllers;  ///< Empty for v2.
  std::string_view path;
};

std::vector<Membership> memberships(std::string_view text) {
  std::vector<Membership> found;
  for (std::string_view line : split(text, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    found.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return found;
}

struct CgroupMount {
  int version = 0;
  std::string root;
  std::string point;
};

/// The mounts of the hierarchy of v1 that has `controller`, or of v2 when that is empty.
std::vector<CgroupMount> cgroup_mounts(std::string_view mounts, std::string_view controller) {
  std::vector<CgroupMount> found;
  for (std::string_view line : split(mounts, '\n')) {
    const std::vector<std::string_view> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool wanted = controller.empty()
                            ? dash[1] == "cgroup2"
                            : dash[1] == "cgroup" && has_word(dash[3], ',', controller);
    if (wanted)
      found.push_back({controller.empty() ? 2 : 1, unescaped(words[3]), unescaped(words[4])});
  }
  return found;
}

Error unavailable(int error, std::string what) {
  return {ErrorKind::kUnavailable, error, std::move(what), {}, {}};
}

// --- files --------------------------------------------------------------------------------------

int write_all(int directory, const char* path, const std::string& text) {
  const UniqueFd file(openat(directory, path, O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return errno;
  const ssize_t wrote = write(file.get(), text.data(), text.size());
  if (wrote < 0) return errno;
  return static_cast<std::size_t>(wrote) == text.size() ? 0 : EIO;
}

int writable(const std::string& path) {
  return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

// --- where one can be made ----------------------------------------------------------------------

std::vector<std::string> among(const std::vector<std::string>& wanted, std::string_view had) {
  std::vector<std::string> both;
  for (const std::string& controller : wanted)
    if (has_word(trimmed(had), ' ', controller)) both.push_back(controller);
  return both;
}

/// systemd marks what it leaves to others (systemd.resource-control, Delegate=). Below a mount that
/// is not the hierarchy's own root, a container's, everything belongs to the container; and what
/// root has given to another uid was given on purpose.
bool is_delegated(const OwnCgroup& own, const std::string& directory) {
  struct stat about {};
  if (stat(directory.c_str(), &about) == 0 && about.st_uid != 0) return true;
  if (access((own.mount_point + "/cgroup.type").c_str(), F_OK) == 0) return true;
  for (std::string at = directory; at.size() > own.mount_point.size(); at.resize(at.rfind('/'))) {
    for (const char* mark : {"user.delegate", "trusted.delegate"}) {
      char value = 0;
      if (getxattr(at.c_str(), mark, &value, 1) == 1 && value == '1') return true;
    }
  }
  return false;
}

bool is_alone_in(const std::string& directory) {
  return trimmed(read_file(AT_FDCWD, directory + "/cgroup.procs")) == std::to_string(getpid());
}

CgroupParent parent_at(const OwnCgroup& own, const std::string& directory,
                       std::vector<std::string> controllers) {
  CgroupParent parent;
  parent.version = own.version;
  parent.mount_point = own.mount_point;
  parent.directory = directory;
  parent.path = own.path;
  if (directory != own.directory) parent.path.resize(parent.path.rfind('/'));
  if (parent.path.empty()) parent.path = "/";
  parent.home = own.directory;
  parent.controllers = std::move(controllers);
  return parent;
}

/// 0, or why the launcher cannot make a cgroup in `directory` and move itself there and back.
int cannot_use(const std::string& directory, const OwnCgroup& own) {
  for (const std::string& path :
       {directory, directory + "/cgroup.procs", own.directory + "/cgroup.procs"})
    if (const int error = writable(path); error != 0) return error;
  return 0;
}

Result<CgroupParent> place_v1(const OwnCgroup& own, std::string controller) {
  if (const int error = cannot_use(own.directory, own); error != 0)
    return fail(unavailable(error, own.directory + " cannot be written"));
  return parent_at(own, own.directory, {std::move(controller)});
}

/// Without a controller there is nothing to hand down.
Result<CgroupParent> place_for_accounting(const OwnCgroup& own) {
  if (const int error = cannot_use(own.directory, own); error != 0)
    return fail(unavailable(error, own.directory + " cannot be written"));
  return parent_at(own, own.directory, {std::string(kCpuAccounting)});
}

/// A cgroup of v2 that has processes hands no controllers down, the hierarchy's root excepted ("no
/// internal processes", man 7 cgroups). So it is the launcher's own one where that is handed down
/// already; its own again when it is alone there and can move into a leaf; or the one above, when
/// that was given to it.
Result<CgroupParent> place_v2(const OwnCgroup& own, const std::vector<std::string>& wanted) {
  const auto words = [](const std::string& file) { return read_file(AT_FDCWD, file); };
  const std::string& directory = own.directory;
  const std::vector<std::string> had = among(wanted, words(directory + "/cgroup.controllers"));
  const int error = cannot_use(directory, own);
  if (error == 0) {
    auto below = among(wanted, words(directory + "/cgroup.subtree_control"));
    if (!below.empty()) return parent_at(own, directory, std::move(below));
    if (!had.empty() && is_alone_in(directory)) {
      CgroupParent parent = parent_at(own, directory, had);
      parent.needs_leaf = true;
      return parent;
    }
  }
  if (directory.size() > own.mount_point.size()) {
    const std::string above = directory.substr(0, directory.rfind('/'));
    auto handed = among(wanted, words(above + "/cgroup.controllers"));
    if (!handed.empty() && cannot_use(above, own) == 0 && is_delegated(own, above))
      return parent_at(own, above, std::move(handed));
  }
  if (error != 0) return fail(unavailable(error, directory + " cannot be written"));
  if (had.empty())
    return fail(unavailable(ENOENT, "the cgroup " + directory + " was given no controller"));
  return fail(unavailable(EBUSY, "the cgroup " + directory + " holds other processes too"));
}

// --- names --------------------------------------------------------------------------------------

std::string pid_namespace() {
  struct stat about {};
  if (fstatat(proc_directory(), "self/ns/pid", &about, 0) != 0) return "0";
  return std::to_string(about.st_ino);
}

/// Field 22 of /proc/PID/stat: with the pid, it names a process for good. Empty when there is none.
std::string start_time(const std::string& pid) {
  const std::string text = read_file(proc_directory(), pid + "/stat");
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  const std::vector<std::string_view> words =
      split(std::string_view(text).substr(name_end + 2), ' ');
  return words.size() > 19 ? std::string(words[19]) : std::string();
}

/// Whether `name` is one of ours of this pid namespace, whose launcher is gone.
bool is_left_over(std::string_view name, const std::string& pids) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  if (name.ends_with(kLeafSuffix)) name.remove_suffix(kLeafSuffix.size());
  const std::vector<std::string_view> words = split(name, '-');
  if (words.size() != 4 || words[0] != pids) return false;
  for (std::string_view word : words)
    if (!parse_number(word)) return false;
  return start_time(std::string(words[1])) != words[2];
}

}  // namespace

Result<OwnCgroup> find_own_cgroup(std::string_view membership, std::string_view mounts,
                                  std::string_view controller) {
  const Membership* own = nullptr;
  const std::vector<Membership> all = memberships(membership);
  for (const Membership& line : all) {
    if (line.controllers.empty() && own == nullptr) own = &line;
    if (has_word(line.controllers, ',', controller)) {
      own = &line;
      break;
    }
  }
  const std::string name(controller);
  if (own == nullptr)
    return fail(unavailable(ENOENT, "this kernel has no cgroup controller " + name));
  for (const CgroupMount& mount :
       cgroup_mounts(mounts, own->controllers.empty() ? std::string_view() : controller)) {
    std::string_view below = own->path;
    if (mount.root != "/") {
      if (!below.starts_with(mount.root)) continue;
      below.remove_prefix(mount.root.size());
      if (!below.empty() && below.front() != '/') continue;
    }
    // Outside of what a cgroup namespace shows.
    if (below.starts_with("/..")) continue;
    if (below == "/") below = {};
    return OwnCgroup{mount.version, mount.point, mount.point + std::string(below),
                     std::string(own->path)};
  }
  return fail(unavailable(ENOENT,
                          "no mounted cgroup file system shows belljar's own cgroup of the "
                          "controller " +
                              name));
}

const CgroupParent* CgroupPlaces::serving(std::string_view controller) const {
  for (const CgroupParent& parent : parents)
    for (const std::string& had : parent.controllers)
      if (had == controller) return &parent;
  return nullptr;
}

bool is_cgroup_file_system(const std::string& directory) {
  struct statfs about {};
  if (statfs(directory.c_str(), &about) != 0) return false;
  return about.f_type == CGROUP_SUPER_MAGIC || about.f_type == CGROUP2_SUPER_MAGIC;
}

CgroupPlaces find_cgroup_places(std::string_view membership, std::string_view mounts,
                                const std::vector<std::string>& controllers,
                                bool (*is_real)(const std::string&)) {
  CgroupPlaces places;
  std::vector<std::string> unified;
  std::optional<OwnCgroup> own_unified;
  for (const std::string& controller : controllers) {
    Result<OwnCgroup> own = find_own_cgroup(membership, mounts, controller);
    if (own && !is_real(own->directory))
      own = fail(unavailable(ENODEV, own->directory + " is no cgroup of the kernel's"));
    if (own && own->version == 2) {
      unified.push_back(controller);
      own_unified = *own;
      continue;
    }
    Result<CgroupParent> place = own ? place_v1(*own, controller) : fail(own.error());
    if (!place) {
      places.missing.emplace(controller, place.error());
      continue;
    }
    // Controllers that are mounted together, as cpu and cpuacct often are, share a directory.
    auto same = std::find_if(places.parents.begin(), places.parents.end(),
                             [&](const auto& p) { return p.directory == place->directory; });
    if (same != places.parents.end())
      same->controllers.push_back(controller);
    else
      places.parents.push_back(std::move(*place));
  }
  if (unified.empty()) return places;
  const bool accounting = std::erase(unified, kCpuAccounting) > 0;
  Result<CgroupParent> place = place_v2(*own_unified, unified);
  if (accounting && place) place->controllers.emplace_back(kCpuAccounting);
  if (place) places.parents.push_back(*place);
  if (accounting && !place) {
    // Whatever there is no place for, time is counted without a controller.
    Result<CgroupParent> counting = place_for_accounting(*own_unified);
    if (counting)
      places.parents.push_back(std::move(*counting));
    else
      places.missing.emplace(kCpuAccounting, counting.error());
  }
  for (const std::string& controller : unified) {
    if (places.serving(controller) != nullptr) continue;
    Error why = place ? unavailable(ENOENT, "the cgroup " + place->directory +
                                                " was not given the controller " + controller)
                      : place.error();
    places.missing.emplace(controller, std::move(why));
  }
  return places;
}

CgroupPlaces find_cgroup_places(const std::vector<std::string>& controllers) {
  return find_cgroup_places(read_file(proc_directory(), "self/cgroup"),
                            read_file(proc_directory(), "self/mountinfo"), controllers);
}

std::string cgroup_name() {
  static int count = 0;
  return std::string(kPrefix) + pid_namespace() + "-" + std::to_string(getpid()) + "-" +
         start_time("self") + "-" + std::to_string(++count);
}

void sweep_cgroups(const std::string& directory) {
  DIR* list = opendir(directory.c_str());
  if (list == nullptr) return;
  const std::string pids = pid_namespace();
  while (const dirent* entry = readdir(list)) {
    struct stat about {};
    if (!is_left_over(static_cast<const char*>(entry->d_name), pids)) continue;
    if (fstatat(dirfd(list), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    // Another user's is that user's to remove.
    if (S_ISDIR(about.st_mode) && about.st_uid == geteuid())
      unlinkat(dirfd(list), entry->d_name, AT_REMOVEDIR);
  }
  closedir(list);
}

// --- one cgroup ---------------------------------------------------------------------------------

Result<Cgroup> Cgroup::make(const CgroupParent& parent, const std::string& name,
                            const std::vector<std::string>& controllers) {
  Cgroup made;
  made.version_ = parent.version;
  made.where_ = parent.directory;
  made.parent_ =
      UniqueFd(open(parent.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made.parent_.valid()) return sys_failure(errno, "open the cgroup " + parent.directory);
  sweep_cgroups(parent.directory);
  made.name_ = name;
  BELLJAR_CHECK(made.prepare_parent(parent, controllers));
  if (mkdirat(made.parent_.get(), name.c_str(), 0755) != 0) {
    const int error = errno;
    made.leave_leaf();
    return sys_failure(error, "make a cgroup in " + parent.directory);
  }
  made.directory_ = UniqueFd(
      openat(made.parent_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  made.path_ = (parent.path == "/" ? "" : parent.path) + "/" + name;
  if (!made.directory_.valid()) return sys_failure(errno, "open the new cgroup");
  return made;
}

Status Cgroup::prepare_parent(const CgroupParent& parent,
                              const std::vector<std::string>& controllers) {
  if (parent.needs_leaf) {
    BELLJAR_CHECK(enter_leaf(parent));
  } else {
    const std::string procs = parent.home + "/cgroup.procs";
    home_ = UniqueFd(open(procs.c_str(), O_WRONLY | O_CLOEXEC));
    if (!home_.valid()) return sys_failure(errno, "open " + procs);
  }
  if (parent.version != 2) return {};
  const std::string on = read_file(parent_.get(), "cgroup.subtree_control");
  for (const std::string& controller : controllers)
    if (controller != kCpuAccounting && !has_word(trimmed(on), ' ', controller))
      to_switch_ += (to_switch_.empty() ? "+" : " +") + controller;
  if (to_switch_.empty()) return {};
  if (const int error = write_all(parent_.get(), "cgroup.subtree_control", to_switch_);
      error != 0) {
    leave_leaf();
    return sys_failure(error, "switch " + to_switch_ + " on below " + parent.directory);
  }
  return {};
}

Status Cgroup::enter_leaf(const CgroupParent& parent) {
  const std::string name = name_ + std::string(kLeafSuffix);
  if (mkdirat(parent_.get(), name.c_str(), 0755) != 0)
    return sys_failure(errno, "make a leaf in the cgroup " + parent.directory);
  leaf_ = name;
  home_ = UniqueFd(openat(parent_.get(), (name + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (home_.valid() && write(home_.get(), "0", 1) == 1) return {};
  const int error = errno;
  leave_leaf();
  return sys_failure(error, "move belljar into a leaf of the cgroup " + parent.directory);
}

/// The launcher's own cgroup is again what it was. Where this fails the leaf stays until the
/// launcher has ended, and a sweep after that, ignoring.
void Cgroup::leave_leaf() {
  if (leaf_.empty()) return;
  std::replace(to_switch_.begin(), to_switch_.end(), '+', '-');
  if (!to_switch_.empty()) (void)write_all(parent_.get(), "cgroup.subtree_control", to_switch_);
  (void)write_all(parent_.get(), "cgroup.procs", "0");
  unlinkat(parent_.get(), leaf_.c_str(), AT_REMOVEDIR);
  leaf_.clear();
}

Status Cgroup::set(const std::string& file, const std::string& value) {
  if (const int error = write_all(directory_.get(), file.c_str(), value); error != 0)
    return sys_failure(error, "set " + file + " to " + value + " in " + where_ + "/" + name_);
  const std::string text = read_file(directory_.get(), file);
  const std::string_view now = trimmed(text);
  if (now == value) return {};
  const std::optional<std::uint64_t> wanted = parse_number(value), got = parse_number(now);
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const bool rounded =
      file.starts_with("memory.") && wanted && got && *got <= *wanted && *wanted - *got < page;
  if (rounded) return {};
  return fail({ErrorKind::kRefused,
               0,
               "the kernel does not report what was set: " + file + " is " + std::string(now) +
                   " and not " + value,
               {},
               {}});
}

Status Cgroup::enter() {
  if (const int error = write_all(directory_.get(), "cgroup.procs", "0"); error != 0)
    return sys_failure(error, "enter the cgroup " + where_ + "/" + name_);
  inside_ = true;
  return {};
}

Status Cgroup::leave() {
  if (!inside_) return {};
  if (write(home_.get(), "0", 1) != 1)
    return sys_failure(errno, "leave the cgroup " + where_ + "/" + name_);
  inside_ = false;
  return {};
}

bool Cgroup::holds(std::string_view membership) const {
  for (const Membership& line : memberships(membership))
    if (line.controllers.empty() == (version_ == 2) && line.path == path_) return true;
  return false;
}

void Cgroup::kill() const {
  if (version_ == 2 && directory_.valid()) (void)write_all(directory_.get(), "cgroup.kill", "1");
}

std::optional<std::uint64_t> Cgroup::number(const char* file, std::string_view key) const {
  const std::string text = read_file(directory_.get(), file);
  if (key.empty()) return parse_number(trimmed(text));
  for (std::string_view line : split(text, '\n'))
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return parse_number(line.substr(key.size() + 1));
  return std::nullopt;
}

Result<std::uint64_t> Cgroup::counter(const char* file, std::string_view key) const {
  if (const auto value = number(file, key)) return *value;
  const bool there = faccessat(directory_.get(), file, R_OK, AT_EACCESS) == 0;
  return sys_failure(there ? EPROTO : errno, "read " +
                                                 std::string(key.empty() ? "the number" : key) +
                                                 " in " + where_ + "/" + name_ + "/" + file);
}

UniqueFd Cgroup::watch_memory() const {
  if (version_ != 1) return {};
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const UniqueFd control(openat(directory_.get(), "memory.oom_control", O_RDONLY | O_CLOEXEC));
  if (!event.valid() || !control.valid()) return {};
  const std::string line = std::to_string(event.get()) + " " + std::to_string(control.get());
  if (write_all(directory_.get(), "cgroup.event_control", line) != 0) return {};
  return event;
}

bool Cgroup::remove() {
  if (!directory_.valid()) return true;
  if (!leave()) return false;
  // A process that has been waited for is still counted for a moment (EBUSY).
  constexpr int kTries = 400;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  int rc = -1;
  for (int i = 0; i < kTries && rc != 0; ++i) {
    rc = unlinkat(parent_.get(), name_.c_str(), AT_REMOVEDIR);
    if (rc != 0 && errno != EBUSY) break;
    if (rc != 0) nanosleep(&kPause, nullptr);
  }
  directory_.reset();
  leave_leaf();
  return rc == 0;
}

}  // namespace belljar::sys
