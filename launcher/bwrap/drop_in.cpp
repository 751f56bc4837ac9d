#include "launcher/bwrap/drop_in.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "launcher/controls/paths.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"

namespace belljar::launcher::bwrap {
namespace {

constexpr std::uint64_t kSysAdmin = std::uint64_t{1} << 21;  // CAP_SYS_ADMIN

Error refusal(int error, std::string what, std::string remedy = {}) {
  return {ErrorKind::kRefused, error, std::move(what), {}, std::move(remedy)};
}

/// As the sandbox sees it: from its root, without empty components and dots.
std::string inside(const std::string& path) {
  std::string normal;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (!part.empty() && part != ".") normal += "/" + part;
    at = end + 1;
  }
  return normal.empty() ? "/" : normal;
}

/// Above the root there is nothing but the root.
bool is_root(const std::string& normal) {
  return normal.find_first_not_of("/.") == std::string::npos &&
         normal.find("...") == std::string::npos;
}

unsigned flags_of(const FileOperation& file) {
  unsigned flags = kNoSuid;
  if (!file.devices) flags |= kNoDev;
  if (file.readonly) flags |= kReadOnly;
  return flags;
}

/// Who may not look at a file may not look into the directory that is made for it.
mode_t parents_of(const FileOperation& file) {
  mode_t mode = 0755;
  if (!file.mode) return mode;
  if ((*file.mode & 0070U) == 0) mode &= ~0050U;
  if ((*file.mode & 0007U) == 0) mode &= ~0005U;
  return mode;
}

/// Where execvp looks (man 3 exec): an empty entry is the current directory.
std::vector<std::string> candidates(const std::string& program,
                                    const std::vector<std::string>& environment) {
  if (program.empty() || program.find('/') != std::string::npos) return {program};
  std::string path = "/bin:/usr/bin";
  for (const std::string& entry : environment)
    if (entry.starts_with("PATH=")) path = entry.substr(5);
  std::vector<std::string> found;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string entry = path.substr(at, end - at);
    found.push_back(entry.empty() ? program : entry + "/" + program);
    at = end + 1;
  }
  return found;
}

class Planner {
 public:
  Planner(const Options& options, const Host& host, const Inherited& inherited)
      : options_(options),
        host_(host),
        inherited_(inherited),
        own_user_(makes_user_namespace(options, host, inherited)) {}

  Result<Plan> make() {
    if (options_.directory && options_.directory->empty())
      return tl::unexpected(refusal(ENOENT, "Can't chdir to "));
    prepare();
    add_namespaces();
    add_init();
    add(Side::kInit, LiteralRoot{}, "filesystem");
    for (const FileOperation& file : options_.files) add_file(file);
    add(Side::kInit, SettleMountFlags{}, "filesystem");
    add(Side::kInit, PivotRoot{}, "filesystem");
    add_last_of_init();
    add_payload();
    BELLJAR_CHECK(validate(plan_));
    return std::move(plan_);
  }

 private:
  void add(Side side, StepAction action, const char* control, std::string because = {}) {
    plan_.steps.push_back({side, std::move(action), control, std::move(because)});
  }

  void prepare() {
    DropIn how;
    const bool reaper = options_.pid || !options_.lock_files.empty() || options_.sync_fd >= 0;
    how.direct = options_.as_pid_1 || !reaper;
    how.lingers = !how.direct && !options_.die_with_parent;
    how.die_with_parent = options_.die_with_parent;
    how.held = how.direct ? -1 : options_.sync_fd;
    plan_.drop_in = how;
    plan_.uid = host_.uid;
    plan_.gid = host_.gid;
    plan_.argv = options_.command;
    if (options_.argv0) plan_.argv.front() = *options_.argv0;
    plan_.environment = inherited_.environment;
    std::erase_if(plan_.environment,
                  [](const std::string& entry) { return entry.starts_with("PWD="); });
    // Filled in when it is known.
    plan_.environment.push_back("PWD=" + std::string(PATH_MAX, '\0'));
  }

  [[nodiscard]] std::uint64_t flags() const {
    std::uint64_t flags = CLONE_NEWNS;
    if (own_user_) flags |= CLONE_NEWUSER;
    if (options_.ipc) flags |= CLONE_NEWIPC;
    if (options_.pid) flags |= CLONE_NEWPID;
    if (options_.net) flags |= CLONE_NEWNET;
    if (options_.uts) flags |= CLONE_NEWUTS;
    const Want cgroup = options_.cgroup;
    if (cgroup == Want::kYes || (cgroup == Want::kIfPossible && inherited_.cgroup_namespaces))
      flags |= CLONE_NEWCGROUP;
    return flags;
  }

  void add_namespaces() {
    const auto join = [this](int fd, const char* kind, std::uint64_t flag) {
      if (fd < 0) return;
      const std::string path = "/proc/" + inherited_.number + "/fd/" + std::to_string(fd);
      add(Side::kLauncher, JoinNamespace{kind, flag, path}, "namespaces");
    };
    join(options_.userns, "user", CLONE_NEWUSER);
    join(options_.pidns, "pid", CLONE_NEWPID);
    add(Side::kLauncher, CreateNamespaces{flags(), false, host_.uid, host_.gid}, "namespaces");
  }

  [[nodiscard]] IdLine uid_line() const { return {options_.uid.value_or(host_.uid), host_.uid, 1}; }
  [[nodiscard]] IdLine gid_line() const { return {options_.gid.value_or(host_.gid), host_.gid, 1}; }

  void add_init() {
    if (own_user_ && options_.userns_block_fd < 0)
      add(Side::kInit, MapIds{{uid_line()}, {gid_line()}}, "identity");
    const bool reports = options_.info_fd >= 0 || options_.status_fd >= 0;
    if (reports) add(Side::kInit, AwaitLauncher{}, "namespaces");
    if (options_.new_session) add(Side::kInit, NewSession{}, "namespaces");
    // Whoever asks for the numbers of its namespaces may open them: slirp4netns does.
    if (!plan_.drop_in->direct) add(Side::kInit, GuardInit{reports, true}, "namespaces");
    if (options_.net) add(Side::kInit, RaiseLoopback{}, "network");
    if (options_.hostname) add(Side::kInit, SetHostname{*options_.hostname}, "identity");
    add(Side::kInit, CheckNamespaces{flags()}, "namespaces");
  }

  void add_file(const FileOperation& file) {
    const std::string target = inside(file.target);
    const std::size_t first = plan_.steps.size();
    add(Side::kInit, action_of(file, target), "filesystem", file.text());
    // With the host's uid 0 by owner alone, whatever namespace it is in. Somebody else who is
    // called 0 needs none, and below a /proc that is covered in part nobody can mount another.
    if (file.kind == FileKind::kProc && host_.uid == 0 && inherited_.zero_owns_sysctls)
      add(Side::kInit, ProtectProc{target}, "proc_and_dev", file.text());
    Step& step = plan_.steps[first];
    step.parents = parents_of(file);
    const bool mounts = file.kind != FileKind::kDirectory && file.kind != FileKind::kSymlink &&
                        file.kind != FileKind::kChmod && file.kind != FileKind::kFile &&
                        file.kind != FileKind::kRemountReadOnly;
    step.covers_root = mounts && is_root(target);
  }

  [[nodiscard]] StepAction action_of(const FileOperation& file, const std::string& target) const {
    switch (file.kind) {
      case FileKind::kBind:
      case FileKind::kBindDescriptor:
        return BindMount{file.source,      target,         flags_of(file),
                         file.optional,    false,          /*may_create=*/true,
                         /*mapped=*/false, file.descriptor};
      case FileKind::kRemountReadOnly:
        return RemountReadOnly{target};
      case FileKind::kTmpfs:
        return MountTmpfs{target, file.size, 0, file.mode.value_or(0755), kNoSuid | kNoDev, true};
      case FileKind::kMqueue:
        return MountMqueue{target, true};
      case FileKind::kProc:
        return proc(target);
      case FileKind::kDev:
        return MountDev{target, 0, 0, kNoSuid | kNoDev, false, true, true, inherited_.terminal};
      case FileKind::kDirectory:
        return MakeDirectory{target, file.mode.value_or(0755)};
      case FileKind::kFile:
        return WriteFile{target, file.descriptor, file.mode.value_or(0666)};
      case FileKind::kBindData:
        return BindData{target, file.descriptor, flags_of(file), file.mode.value_or(0600)};
      case FileKind::kSymlink:
        return MakeSymlink{target, file.source};
      case FileKind::kChmod:
        return ChangeMode{target, *file.mode};
      case FileKind::kOverlay:
        return overlay(file, target);
    }
    return MakeDirectory{};
  }

  [[nodiscard]] StepAction proc(const std::string& target) const {
    if (options_.pid || options_.pidns >= 0)
      return MountProc{target, ProcMode::kFull, {}, /*weaker=*/false, /*may_create=*/true};
    return BindMount{"/proc", target, kNoSuid | kNoDev | kNoExec, false, false, true, false};
  }

  static StepAction overlay(const FileOperation& file, const std::string& target) {
    MountOverlay made;
    made.target = target;
    made.layers.assign(file.layers.rbegin(), file.layers.rend());
    made.upper = file.source;
    made.work = file.work;
    if (file.memory) made.memory = MountOverlay::Memory{};
    made.flags = flags_of(file);
    made.may_create = true;
    return made;
  }

  void add_last_of_init() {
    if (options_.userns2 >= 0) add(Side::kInit, JoinUser{options_.userns2}, "namespaces");
    if (options_.disable_userns) {
      // What the first one calls it, the second one does.
      const IdLine uid{uid_line().inside, uid_line().inside, 1};
      const IdLine gid{gid_line().inside, gid_line().inside, 1};
      add(Side::kInit, NestUser{uid, gid}, "namespaces");
    }
    if (options_.disable_userns || options_.userns_disabled)
      add(Side::kInit, CheckNoUser{}, "namespaces");
    for (const std::string& path : options_.lock_files)
      add(Side::kInit, LockFile{path}, "filesystem");
    if (!plan_.drop_in->direct) add(Side::kInit, ForgetLauncher{}, "namespaces");
  }

  /// What bwrap leaves to the command; none: the sets stay as they are.
  [[nodiscard]] std::optional<std::uint64_t> capabilities() const {
    const bool joins = options_.userns >= 0 || options_.userns2 >= 0;
    const bool root = host_.uid == 0 && !joins;
    // A new user namespace would give it more than it has.
    if (root && options_.capabilities.empty() && !own_user_) return std::nullopt;
    std::uint64_t keep = root ? host_.capabilities : 0;
    for (const CapabilityChange& change : options_.capabilities)
      keep = change.add ? keep | change.bits : keep & ~change.bits;
    if (root && !own_user_) keep &= host_.capabilities;
    return keep & ((std::uint64_t{2} << inherited_.last_capability) - 1);
  }

  [[nodiscard]] std::vector<int> kept() const {
    std::vector<int> used = {options_.userns,   options_.userns2,         options_.pidns,
                             options_.block_fd, options_.userns_block_fd, options_.info_fd,
                             options_.status_fd};
    if (plan_.drop_in->held >= 0) used.push_back(plan_.drop_in->held);
    for (const FileOperation& file : options_.files) used.push_back(file.descriptor);
    std::vector<int> left;
    for (const int fd : inherited_.descriptors)
      if (std::find(used.begin(), used.end(), fd) == used.end()) left.push_back(fd);
    return left;
  }

  [[nodiscard]] std::vector<std::string> directories() const {
    if (options_.directory) return {*options_.directory};
    std::vector<std::string> wanted;
    if (!inherited_.directory.empty()) wanted.push_back(inherited_.directory);
    for (const std::string& entry : inherited_.environment)
      if (entry.starts_with("HOME=") && entry.size() > 5) wanted.push_back(entry.substr(5));
    wanted.emplace_back("/");
    return wanted;
  }

  void add_payload() {
    const auto payload = [this](StepAction action, const char* control) {
      add(Side::kPayload, std::move(action), control);
    };
    const bool known = own_user_ || (options_.userns < 0 && options_.userns2 < 0);
    const bool mapped = known && options_.userns_block_fd < 0 && options_.userns2 < 0;
    const uid_t uid = !mapped ? kAnyId : own_user_ ? uid_line().inside : host_.uid;
    const gid_t gid = !mapped ? kAnyId : own_user_ ? gid_line().inside : host_.gid;
    const std::optional<std::uint64_t> keep = capabilities();
    payload(CheckInit{uid, gid, 0}, "identity");
    payload(SetSignalMask{inherited_.signal_mask}, "stdio");
    payload(SetUmask{inherited_.umask}, "identity");
    payload(EnterDirectory{directories(), options_.directory.has_value()}, "command");
    const bool ambient = !options_.capabilities.empty();
    if (keep) payload(SetCapabilities{*keep, ambient}, "capabilities");
    payload(SetNoNewPrivileges{}, "no_new_privs");
    if (options_.die_with_parent) payload(DieWithLauncher{}, "namespaces");
    if (options_.block_fd >= 0) payload(Block{options_.block_fd}, "command");
    CheckPayload check;
    check.uid = uid;
    check.gid = gid;
    check.umask = inherited_.umask;
    check.capabilities = keep.value_or(0);
    check.when = !keep     ? kCapabilitiesAsTheyAre
                 : ambient ? kCapabilitiesInForce
                           : kCapabilitiesOfRoot;
    payload(check, "identity");
    payload(CloseDescriptors{kept()}, "stdio");
    add_filters();
    payload(Exec{candidates(options_.command.front(), inherited_.environment)}, "command");
  }

  /// Last of all: each may know nothing but exec and the loading of the next.
  void add_filters() {
    for (const std::string& bytes : options_.filters) {
      SeccompProgram program;
      program.instructions.resize(bytes.size() / sizeof(sock_filter));
      std::memcpy(program.instructions.data(), bytes.data(),
                  program.instructions.size() * sizeof(sock_filter));
      InstallFilter install{"of the caller", SeccompFilter(std::move(program)), false, false, {}};
      install.alone = true;
      add(Side::kPayload, std::move(install), "seccomp");
    }
  }

  const Options& options_;
  const Host& host_;
  const Inherited& inherited_;
  bool own_user_;
  Plan plan_;
};

Result<std::string> real_path(const std::string& path) {
  std::array<char, PATH_MAX> real{};
  // An empty name is nothing, and never the root.
  if (path.empty() || realpath(path.c_str(), real.data()) == nullptr)
    return tl::unexpected(refusal(path.empty() ? ENOENT : errno, "Can't find source path " + path));
  return std::string(real.data());
}

/// The path that leads to what a descriptor is on. It is looked at again when it is bound.
Result<std::string> path_of_descriptor(int fd) {
  const std::string link = "self/fd/" + std::to_string(fd);
  std::array<char, PATH_MAX> path{};
  const ssize_t length =
      readlinkat(sys::proc_directory(), link.c_str(), path.data(), path.size() - 1);
  if (length < 0)
    return tl::unexpected(
        refusal(errno == ENOENT ? EBADF : errno, "Can't find source path of fd " + link.substr(8)));
  if (path[0] != '/')
    return tl::unexpected(refusal(EINVAL, "fd " + link.substr(8) + " is on nothing with a path"));
  return std::string(path.data());
}

/// A name that ends in a slash is a directory's.
Status refuse_directory_for_file(const FileOperation& file) {
  if (!file.target.ends_with("/")) return {};
  const bool content = file.kind == FileKind::kFile || file.kind == FileKind::kBindData;
  const bool binds = file.kind == FileKind::kBind || file.kind == FileKind::kBindDescriptor;
  struct stat about {};
  if (!content && !(binds && stat(file.source.c_str(), &about) == 0 && !S_ISDIR(about.st_mode)))
    return {};
  return fail(refusal(EISDIR, "Can't create file at " + file.target));
}

Status resolve(FileOperation& file) {
  if (file.kind == FileKind::kBindDescriptor)
    file.source = BELLJAR_TRY(path_of_descriptor(file.descriptor));
  if (file.kind == FileKind::kBind) file.source = BELLJAR_TRY(real_path(file.source));
  BELLJAR_CHECK(refuse_directory_for_file(file));
  if (file.kind != FileKind::kOverlay) return {};
  for (std::string& layer : file.layers) layer = BELLJAR_TRY(real_path(layer));
  if (file.readonly || file.memory) return {};
  file.source = BELLJAR_TRY(real_path(file.source));
  file.work = BELLJAR_TRY(real_path(file.work));
  return {};
}

bool is_there(const char* name) {
  struct stat about {};
  return fstatat(sys::proc_directory(), name, &about, 0) == 0;
}

}  // namespace

Result<Inherited> look_around(const Options& options, std::vector<int> descriptors) {
  Inherited found;
  found.descriptors = std::move(descriptors);
  sigset_t mask;
  if (sigprocmask(SIG_BLOCK, nullptr, &mask) != 0)
    return sys_failure(errno, "read the signal mask");
  std::memcpy(&found.signal_mask, &mask, sizeof found.signal_mask);
  found.umask = umask(022);
  umask(found.umask);
  std::array<char, 16> number{};
  if (readlinkat(sys::proc_directory(), "self", number.data(), number.size() - 1) > 0)
    found.number = number.data();
  std::array<char, PATH_MAX> here{};
  if (getcwd(here.data(), here.size()) != nullptr && here[0] == '/') found.directory = here.data();
  if (options.user == Want::kIfPossible) {
    const std::string most = sys::read_file(sys::proc_directory(), "sys/user/max_user_namespaces");
    found.user_namespaces = is_there("self/ns/user") && !most.starts_with("0");
  }
  struct stat sysctls {};
  if (fstatat(sys::proc_directory(), "sys", &sysctls, 0) == 0)
    found.zero_owns_sysctls = sysctls.st_uid == 0;
  if (options.cgroup == Want::kIfPossible) found.cgroup_namespaces = is_there("self/ns/cgroup");
  for (const FileOperation& file : options.files)
    found.terminal |= file.kind == FileKind::kDev && isatty(STDOUT_FILENO) == 1;
  while (!options.capabilities.empty() && found.last_capability < 62 &&
         prctl(PR_CAPBSET_READ, found.last_capability + 1, 0, 0, 0) >= 0)
    ++found.last_capability;
  while (found.last_capability > 0 && prctl(PR_CAPBSET_READ, found.last_capability, 0, 0, 0) < 0)
    --found.last_capability;
  std::vector<const char*> callers;
  for (char** entry = environ; *entry != nullptr; ++entry) callers.push_back(*entry);
  found.environment = BELLJAR_TRY(environment_after(options.environment, callers));
  return found;
}

Status resolve_sources(Options& options) {
  std::vector<FileOperation> kept;
  for (FileOperation& file : options.files) {
    const std::string given = file.source;
    Status done = resolve(file);
    const bool missing = !done && done.error().sys_errno == ENOENT && !given.empty();
    if (missing && file.optional) continue;
    if (!done) return done;
    kept.push_back(std::move(file));
  }
  options.files = std::move(kept);
  return {};
}

Status read_filters(Options& options, const ReadDescriptor& read) {
  if (options.seccomp >= 0) {
    Result<std::string> bytes = read(options.seccomp);
    if (!bytes) {
      Error error = bytes.error();
      error.what = "Can't read seccomp data";
      return fail(std::move(error));
    }
    options.filters.push_back(std::move(*bytes));
  }
  // All of them are looked at for this, which callers match on, before any is for what the kernel
  // would refuse.
  for (const std::string& bytes : options.filters)
    if (bytes.size() % sizeof(sock_filter) != 0)
      return fail(refusal(0, "Invalid seccomp data, must be multiple of 8"));
  for (const std::string& bytes : options.filters) {
    if (bytes.empty() || bytes.size() / sizeof(sock_filter) > BPF_MAXINSNS)
      return fail(refusal(0, "Invalid seccomp data: a filter has 1 to 4096 instructions"));
  }
  return {};
}

bool makes_user_namespace(const Options& options, const Host& host, const Inherited& inherited) {
  if (options.userns >= 0) return false;
  if (options.user == Want::kYes) return true;
  // Without it nothing could be mounted.
  const bool needed = host.uid != 0 || (host.capabilities & kSysAdmin) == 0;
  return needed || (options.user == Want::kIfPossible && inherited.user_namespaces);
}

Result<Plan> plan(const Options& options, const Host& host, const Inherited& inherited) {
  return Planner(options, host, inherited).make();
}

}  // namespace belljar::launcher::bwrap
