#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/settings.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

using policy::HomeKind;
using policy::Mount;
using policy::MountType;
using policy::RootKind;

int try_create(const char* path) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  close(fd);
  unlink(path);
  return 0;
}

constexpr Probe kProbes[] = {
    {"write-usr", "create a file in /usr", [] { return try_create("/usr/belljar-probe"); },
     [](const Made& made) -> const char* {
       return refused_path(made, "write:/usr/belljar-probe");
     }},
    {"write-etc", "create a file in /etc", [] { return try_create("/etc/belljar-probe"); },
     [](const Made& made) -> const char* {
       return refused_path(made, "write:/etc/belljar-probe");
     }},
    {"write-root", "create a file in /", [] { return try_create("/belljar-probe"); },
     [](const Made& made) -> const char* {
       return made.policy.filesystem.mounts.contains("/") ? nullptr : "filesystem.root";
     }},
    {"remount-root", "remount / writable",
     [] { return mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND, nullptr) == 0 ? 0 : errno; },
     [](const Made& made) -> const char* {
       return refused_without(made.policy, "CAP_SYS_ADMIN", "mount");
     }},
    {"unmount-tmp", "unmount /tmp", [] { return umount2("/tmp", MNT_DETACH) == 0 ? 0 : errno; },
     [](const Made& made) -> const char* {
       return refused_without(made.policy, "CAP_SYS_ADMIN", "umount2");
     }},
    {"read-shadow", "read the host's password hashes",
     [] {
       const int fd = open("/etc/shadow", O_RDONLY | O_CLOEXEC);
       if (fd < 0) return errno;
       close(fd);
       return 0;
     },
     [](const Made& made) -> const char* { return refused_path(made, "read:/etc/shadow"); }},
};

/// What stands at a path is a directory of the host's that the command writes to.
bool writes_to_host(const StepAction& action) {
  if (const auto* overlay = std::get_if<MountOverlay>(&action)) return !overlay->upper.empty();
  const auto* bind = std::get_if<BindMount>(&action);
  return bind != nullptr && !(bind->flags & kReadOnly);
}

/// Links of root's on the way to what a mount shows are replaced.
void replace_links(StepAction& action, const Host& host) {
  const auto replace = [&host](std::string& path) {
    if (auto real = host.sources.find(path); real != host.sources.end()) path = real->second;
  };
  if (auto* bind = std::get_if<BindMount>(&action)) replace(bind->source);
  auto* overlay = std::get_if<MountOverlay>(&action);
  if (overlay == nullptr) return;
  std::for_each(overlay->layers.begin(), overlay->layers.end(), replace);
  replace(overlay->upper);
  replace(overlay->work);
}

/// One thing that will stand at a path. Mounts are collected first and ordered by path, so that
/// parents come before children and the order of the file means nothing.
struct Piece {
  StepAction action;
  std::string because;
  bool ours = false;  ///< A tmpfs of ours: mount points below it can be made.
};

/// The planned file tree, by target.
class Tree {
 public:
  /// The first to claim a target keeps it: callers go from the explicit to the implied.
  void put(const std::string& target, Piece piece) {
    pieces_.try_emplace(target, std::move(piece));
  }
  [[nodiscard]] bool has(const std::string& target) const { return pieces_.contains(target); }

  /// Whether the parent of `target` will be on a tmpfs of ours.
  [[nodiscard]] bool may_create(const std::string& target) const {
    for (std::string path = parent_of(target);; path = parent_of(path)) {
      if (auto found = pieces_.find(path); found != pieces_.end()) return found->second.ours;
      if (path == "/") return true;
    }
  }

  /// The target of the writable directory of the host that `path` lies in; empty when it lies in
  /// none.
  [[nodiscard]] std::string writable_above(const std::string& path) const {
    for (std::string above = parent_of(path); above != "/"; above = parent_of(above)) {
      const auto found = pieces_.find(above);
      if (found == pieces_.end()) continue;
      return writes_to_host(found->second.action) ? above : std::string();
    }
    return {};
  }

  void emit(PlanBuilder& builder) {
    for (auto& [path, piece] : pieces_) {
      const std::string& target = path;  // clang 14 captures no structured binding.
      if (target == "/") continue;
      std::visit(
          [&](auto& action) {
            if constexpr (requires { action.may_create; }) action.may_create = may_create(target);
          },
          piece.action);
      replace_links(piece.action, builder.host);
      if (auto* dev = std::get_if<MountDev>(&piece.action)) {
        const auto queues = pieces_.find(join(target, "mqueue"));
        dev->queues =
            queues != pieces_.end() && std::holds_alternative<MountMqueue>(queues->second.action);
      }
      hold_layers(builder, piece);
      const bool kernel_view = std::holds_alternative<MountProc>(piece.action) ||
                               std::holds_alternative<MountDev>(piece.action);
      builder.control = kernel_view ? kProcAndDev.name : kFilesystem.name;
      builder.add(Phase::kMounts, std::move(piece.action), std::move(piece.because));
      builder.control = kFilesystem.name;
    }
  }

 private:
  static void hold_layers(PlanBuilder& builder, const Piece& piece) {
    const auto* overlay = std::get_if<MountOverlay>(&piece.action);
    if (overlay == nullptr) return;
    if (!overlay->upper.empty())
      builder.add(Phase::kBefore, HoldDirectories{{overlay->upper, overlay->work}}, piece.because);
    builder.add(Phase::kBefore, HoldDirectories{overlay->layers, /*shared=*/true}, piece.because);
  }

  std::map<std::string, Piece> pieces_;
};

unsigned flags_of(const Mount& mount) {
  unsigned flags = 0;
  if (mount.readonly) flags |= kReadOnly;
  if (mount.nosuid) flags |= kNoSuid;
  if (mount.nodev) flags |= kNoDev;
  if (mount.noexec) flags |= kNoExec;
  if (mount.noatime) flags |= kNoAtime;
  return flags;
}

/// A tmpfs without a size could take half of the host's memory: these bounds are ours.
constexpr std::uint64_t kDefaultTmpfsSize = std::uint64_t{256} << 20;
constexpr std::uint64_t kDefaultTmpfsInodes = 100'000;
constexpr std::uint64_t kDefaultShmSize = std::uint64_t{64} << 20;

constexpr std::array<ProcMode, 2> kFirstProcMode = {ProcMode::kFull, ProcMode::kPids};

std::string hidepid_option(policy::HidePid hidepid) {
  switch (hidepid) {
    case policy::HidePid::kOff:
      return {};
    case policy::HidePid::kNoAccess:
      return "hidepid=noaccess";
    case policy::HidePid::kInvisible:
      return "hidepid=invisible";
    case policy::HidePid::kPtraceable:
      return "hidepid=ptraceable";
  }
  return {};
}

Piece overlay_of(const std::string& target, const Mount& mount, std::string because) {
  MountOverlay overlay;
  overlay.target = target;
  overlay.flags = flags_of(mount);
  overlay.layers.assign(mount.lower.rbegin(), mount.lower.rend());
  const bool on_host = !mount.upper.empty();
  if (mount.readonly && on_host) {
    // Below nothing that takes changes it is a layer like the others.
    overlay.layers.insert(overlay.layers.begin(), mount.upper);
  } else if (on_host) {
    overlay.upper = mount.upper;
    overlay.work = mount.work;
  } else if (!mount.readonly) {
    overlay.memory = {mount.size.value_or(kDefaultTmpfsSize),
                      mount.inodes.value_or(kDefaultTmpfsInodes), mount.mode.value_or(0755)};
  }
  const bool ours = overlay.memory.has_value();
  return {std::move(overlay), std::move(because), ours};
}

Piece piece_of(const std::string& target, const Mount& mount) {
  const std::string because = policy::member_path("filesystem.mounts", target);
  switch (mount.type) {
    case MountType::kBind:
      return {BindMount{mount.source, target, flags_of(mount), mount.optional, false, false, false},
              because, false};
    case MountType::kTmpfs:
      return {MountTmpfs{target, mount.size.value_or(kDefaultTmpfsSize),
                         mount.inodes.value_or(kDefaultTmpfsInodes), mount.mode.value_or(0755),
                         flags_of(mount), false},
              because, !mount.readonly};
    case MountType::kProc: {
      ProcMode first = kFirstProcMode[mount.subset == policy::ProcSubset::kPid ? 1 : 0];
      if (mount.readonly)
        first = first == ProcMode::kFull ? ProcMode::kFullReadOnly : ProcMode::kPidsReadOnly;
      return {MountProc{target, first, hidepid_option(mount.hidepid),
                        mount.enforce == policy::Enforce::kPrefer, false},
              because, false};
    }
    case MountType::kDev:
      return {MountDev{target, mount.size.value_or(kDefaultShmSize),
                       mount.inodes.value_or(kDefaultTmpfsInodes),
                       kNoSuid | kNoDev | (mount.noexec ? unsigned{kNoExec} : 0U), false, false},
              because, false};
    case MountType::kOverlay:
      return overlay_of(target, mount, because);
    case MountType::kMqueue:
      return {MountMqueue{target, false}, because, false};
    case MountType::kFile:
      return {MakeFile{target, mount.content, mount.mode.value_or(0444)}, because, false};
    case MountType::kDir:
      return {MakeDirectory{target, mount.mode.value_or(0755)}, because, true};
    case MountType::kSymlink:
      return {MakeSymlink{target, mount.source}, because, false};
  }
  return {};
}

/// HOME where the caller has none that could be used: nothing is made on the host for it.
constexpr std::string_view kStandInHome = "/home/sandbox";

/// Top-level names that never come from the host: they are views of the kernel or of what runs now.
constexpr std::array<std::string_view, 5> kNeverFromHost = {"/dev", "/proc", "/run", "/sys",
                                                            "/tmp"};

/// Without these no program starts, so hiding one of them is a mistake to be told about.
constexpr std::array<std::string_view, 5> kNeededByPrograms = {"/usr", "/bin", "/lib", "/lib64",
                                                               "/etc"};

class FileSystemPlan {
 public:
  explicit FileSystemPlan(PlanBuilder& builder)
      : builder_(builder), files_(builder.policy.filesystem) {}

  Status make() {
    BELLJAR_CHECK(check_workspace());
    BELLJAR_CHECK(check_workspace_mount());
    BELLJAR_CHECK(check_overlays());
    add_root();
    for (const auto& [target, mount] : files_.mounts)
      if (target != "/") tree_.put(target, piece_of(target, mount));
    add_workspace();
    add_home();
    if (files_.root == RootKind::kHost) BELLJAR_CHECK(add_host());
    BELLJAR_CHECK(check_made_pieces());
    BELLJAR_CHECK(check_masks());
    note_covered();
    tree_.emit(builder_);
    add_masks();
    return {};
  }

 private:
  Status refuse(std::string what, std::string where, std::string remedy) {
    return fail({ErrorKind::kRefused, 0, std::move(what), std::move(where), std::move(remedy)});
  }

  Status check_workspace() {
    const std::string where = "filesystem.workspace.path";
    workspace_ = workspace_path(builder_.policy, builder_.host);
    if (!files_.workspace) {
      if (files_.home.kind == HomeKind::kWorkspace)
        return refuse("the home is the workspace, and there is no workspace", "filesystem.home",
                      "give one with --workspace DIR");
      return {};
    }
    const bool implied = files_.workspace->path == ".";
    const std::string what = implied ? "the current directory" : "the workspace";
    if (workspace_.empty())
      return refuse("the current directory has no name here", where,
                    "change to another one, or give --workspace DIR");
    if (workspace_ == "/")
      return refuse(what + " is /, which cannot be the workspace", where,
                    "change to a project's directory, or give --workspace DIR");
    if (implied && !builder_.host.home.empty() && is_within(builder_.host.home, workspace_))
      return refuse("the current directory, " + workspace_ + ", holds your whole home", where,
                    "change to a project's directory, or say so with --workspace " + workspace_);
    return check_workspace_access(what);
  }

  Status check_workspace_access(const std::string& what) {
    if (files_.workspace->idmap == policy::IdMapping::kOwner) BELLJAR_CHECK(check_owner());
    const bool wants_to_write = !files_.workspace->readonly;
    const std::string uid = std::to_string(builder_.ids.uid);
    if (builder_.host.workspace_access == Access::kNone) return refuse_unreachable(what, uid);
    read_only_ = !wants_to_write || builder_.host.workspace_access == Access::kRead;
    if (wants_to_write && read_only_)
      builder_.notes.push_back("uid " + uid + " can only read " + workspace_ +
                               ", so it is read-only inside; chown it, or --set identity.uid=N");
    return {};
  }

  Status refuse_unreachable(const std::string& what, const std::string& uid) {
    const std::string where = "filesystem.workspace.path";
    const Host& host = builder_.host;
    if (host.workspace_kind == Host::PathKind::kAbsent)
      return refuse(what + ", " + workspace_ + ", does not exist", where,
                    "make it, so that uid " + uid + " can use it: install -d -o " + uid + " " +
                        shell_word(workspace_));
    if (host.workspace_kind == Host::PathKind::kOther)
      return refuse(what + ", " + workspace_ + ", is not a directory", where,
                    "name a directory with --workspace DIR");
    const std::string remedy =
        host.workspace_blocked_by == workspace_
            ? "chown -R " + uid + " " + shell_word(workspace_) + ", if it is for this alone"
            : "let it pass " + host.workspace_blocked_by;
    return refuse(what + ", " + workspace_ + ", cannot be reached by uid " + uid +
                      ", which the command runs as",
                  where,
                  remedy +
                      ", or choose another directory with --workspace DIR, or another uid "
                      "with --set identity.uid=N");
  }

  /// A mount of the workspace's own path stands in its place, and knows nothing of what is said of
  /// the workspace.
  Status check_workspace_mount() {
    const auto found = files_.mounts.find(workspace_);
    if (!files_.workspace || found == files_.mounts.end()) return {};
    const bool maps = files_.workspace->idmap == policy::IdMapping::kOwner;
    if (!maps && (!files_.workspace->readonly || found->second.readonly)) return {};
    const std::string mount = policy::member_path("filesystem.mounts", workspace_);
    const std::string place = builder_.policy.where(mount);
    return refuse("the mount at " + workspace_ + (place.empty() ? "" : " (" + place + ")") +
                      " takes the place of the workspace, and is not " +
                      (maps ? "mapped to its owner" : "read-only") +
                      " as the workspace is said to be",
                  maps ? "filesystem.workspace.idmap" : "filesystem.workspace.readonly",
                  "remove " + mount + ", or " +
                      (maps ? "the mapping" : "make it \"readonly\": true as well"));
  }

  void add_root() {
    AttachRoot root;
    std::string because = "filesystem.root";
    if (auto found = files_.mounts.find("/"); found != files_.mounts.end()) {
      root.source = found->second.source;
      root.flags = flags_of(found->second);
      because = policy::member_path("filesystem.mounts", "/");
    }
    sealed_ = !root.source;
    tree_.put("/", {root, because, sealed_});
    builder_.add(Phase::kRoot, root, because);
    builder_.add(Phase::kSeal, SettleMountFlags{});
    if (sealed_) builder_.add(Phase::kSeal, SealRoot{}, "filesystem.root");
    builder_.add(Phase::kPivot, PivotRoot{});
  }

  /// What the host lacks would show only when something is written.
  Status check_overlays() {
    for (const auto& [target, mount] : files_.mounts) {
      if (mount.type != MountType::kOverlay || mount.upper.empty() || mount.readonly) continue;
      const std::string where = policy::member_path("filesystem.mounts", target);
      BELLJAR_CHECK(check_written(mount.upper, where + ".upper"));
      BELLJAR_CHECK(check_written(mount.work, where + ".work"));
      const auto upper = builder_.host.written.find(mount.upper);
      const auto work = builder_.host.written.find(mount.work);
      if (upper != builder_.host.written.end() && work != builder_.host.written.end() &&
          upper->second.device != work->second.device)
        return refuse(
            "the work directory " + mount.work + " lies on another file system than " + mount.upper,
            where + ".work", "make it beside the upper directory");
    }
    return {};
  }

  Status check_written(const std::string& path, const std::string& where) {
    const auto found = builder_.host.written.find(path);
    if (found == builder_.host.written.end() || found->second.access == Access::kWrite) return {};
    const std::string uid = std::to_string(builder_.ids.uid);
    if (!found->second.exists)
      return refuse("there is no directory " + path + ", and belljar creates nothing on the host",
                    where, "make it, for uid " + uid + " to write to");
    return refuse(
        path + " is no directory that uid " + uid + ", which the command runs as, can write to",
        where, "let uid " + uid + " write to it, or choose another one");
  }

  void add_workspace() {
    if (workspace_.empty() || tree_.has(workspace_)) return;
    BindMount bind{workspace_, workspace_, kNoSuid | kNoDev, false, false, false, false};
    if (read_only_) bind.flags |= kReadOnly;
    bind.mapped = maps_owner_;
    bind.same_as = builder_.command.workspace;
    if (maps_owner_) map_owner(bind);
    tree_.put(workspace_, {bind, "filesystem.workspace.path", false});
  }

  /// Whether the owner of the workspace can be the session.
  Status check_owner() {
    const std::optional<SessionIds>& owner = builder_.host.workspace_owner;
    Obstacle obstacle = obstacle_to_mapping(builder_.host, builder_.ids);
    if (builder_.command.workspace >= 0)
      obstacle = {"it was opened before, and what is mapped is found by its name",
                  "hand the directory over to the session"};
    maps_owner_ = obstacle.what.empty() && owner && owner->uid != builder_.ids.uid;
    if (obstacle.what.empty()) return {};
    if (files_.workspace->enforce == policy::Enforce::kRequire)
      return refuse("the owner of " + workspace_ + " cannot be mapped: " + obstacle.what,
                    "filesystem.workspace.idmap",
                    obstacle.remedy + ", or write \"enforce\": \"prefer\" to bind it as it is");
    builder_.degrade(workspace_ + " is bound as it is: " + obstacle.what);
    return {};
  }

  void map_owner(const BindMount& bind) {
    MapOwner map{workspace_, *builder_.host.workspace_owner, builder_.ids, bind.flags,
                 files_.workspace->enforce == policy::Enforce::kPrefer};
    if (auto real = builder_.host.sources.find(workspace_); real != builder_.host.sources.end())
      map.path = real->second;
    builder_.add(Phase::kBefore, std::move(map), "filesystem.workspace.idmap");
  }

  void add_home() {
    if (files_.home.kind != HomeKind::kPrivate) return;
    const std::string home = home_path(builder_.policy, builder_.host);
    tree_.put(home, {MountTmpfs{home, kDefaultTmpfsSize, kDefaultTmpfsInodes, 0700,
                                kNoSuid | kNoDev, false},
                     "filesystem.home", true});
    if (files_.toolchains) add_toolchains(builder_.host.home);
  }

  /// What PATH names below the home, and of it as little as works: the directory itself, or the
  /// tree that a known tool manager keeps its programs in. Other trees may hold tokens beside their
  /// programs, as ~/.docker and ~/.local do.
  void add_toolchains(const std::string& home) {
    if (home.empty() || home == "/") return;
    std::string_view rest;
    if (auto found = builder_.host.environment.find("PATH");
        found != builder_.host.environment.end())
      rest = found->second;
    for (std::size_t colon = 0; colon != std::string_view::npos;) {
      colon = rest.find(':');
      const auto normal = policy::normalise_path(rest.substr(0, colon));
      const std::string entry = normal ? *normal : std::string();
      if (colon != std::string_view::npos) rest.remove_prefix(colon + 1);
      if (!entry.empty() && entry != home && is_within(entry, home)) add_toolchain(home, entry);
    }
  }

  void add_toolchain(const std::string& home, const std::string& entry) {
    static constexpr std::array<std::string_view, 16> kManagers = {
        ".asdf", ".bun",   ".cargo", ".deno",   ".ghcup",  ".juliaup", ".nodenv", ".nvm",
        ".opam", ".pyenv", ".rbenv", ".rustup", ".sdkman", ".volta",   "go",      "sdk"};
    static constexpr std::array<std::string_view, 7> kTrees = {
        "anaconda", "mambaforge", "micromamba", "miniconda", "miniforge", "node-", "jdk"};
    const std::size_t from = home.size() + 1;
    const std::string first = entry.substr(from, entry.find('/', from) - from);
    const std::string top = join(home, first);
    const std::string parent = parent_of(entry);
    const std::string parent_name = parent.substr(parent.rfind('/') + 1);
    const auto begins = [&first](std::string_view name) { return first.starts_with(name); };
    if (std::find(kManagers.begin(), kManagers.end(), first) != kManagers.end() ||
        std::any_of(kTrees.begin(), kTrees.end(), begins))
      show_toolchain(top);
    else if (parent_name == ".venv" || parent_name == "venv")
      show_toolchain(parent);
    else
      show_toolchain(entry);
    if (first == ".local") show_toolchain(join(top, "lib"));
    if (first == ".cargo") show_toolchain(join(home, ".rustup"));
  }

  void show_toolchain(const std::string& path) {
    if (tree_.has(path) || is_within(workspace_, path)) return;
    tree_.put(path, {BindMount{path, path, kReadOnly | kNoSuid | kNoDev, true, true, false, false},
                     "filesystem.toolchains", false});
    for (const char* secret : {"credentials", "credentials.toml"})
      toolchain_masks_.push_back(join(path, secret));
  }

  Status add_host() {
    std::map<std::string, std::string> hidden;  // directory -> policy path
    if (files_.home.kind == HomeKind::kPrivate &&
        home_path(builder_.policy, builder_.host) == kStandInHome)
      hidden[std::string(top_level_of(kStandInHome))] = "filesystem.home";
    for (const auto& [name, why] : files_.hide) {
      const std::string where = policy::member_path("filesystem.hide", name);
      if (name == policy::kHideWorkspace) {
        if (!workspace_.empty()) hidden[std::string(top_level_of(workspace_))] = where;
      } else if (name == policy::kHideHome) {
        if (!builder_.host.home.empty() && builder_.host.home != "/")
          hidden[std::string(top_level_of(builder_.host.home))] = where;
      } else {
        hidden[name] = where;
      }
    }
    for (std::string_view needed : kNeededByPrograms)
      if (auto found = hidden.find(std::string(needed)); found != hidden.end())
        return refuse("hiding " + found->first + " would leave no program to run", found->second,
                      "move the workspace or home elsewhere, or remove the entry from "
                      "filesystem.hide");
    for (const TopLevel& top : builder_.host.top_level) add_top_level(top, hidden);
    return {};
  }

  void add_top_level(const TopLevel& top, const std::map<std::string, std::string>& hidden) {
    if (hidden.contains(top.name)) return;
    if (std::find(kNeverFromHost.begin(), kNeverFromHost.end(), top.name) != kNeverFromHost.end())
      return;
    if (!top.link) {
      tree_.put(top.name, {BindMount{top.name, top.name, kReadOnly | kNoSuid | kNoDev, false, false,
                                     false, false},
                           "filesystem.root", false});
      return;
    }
    const std::string target = top.link->starts_with("/") ? *top.link : "/" + *top.link;
    if (!hidden.contains(std::string(top_level_of(target))))
      tree_.put(top.name, {MakeSymlink{top.name, *top.link}, "filesystem.root", false});
  }

  /// Files, directories and links are made in a tmpfs of ours or not at all: nothing is ever
  /// created on the host.
  Status check_made_pieces() {
    for (const auto& [target, mount] : files_.mounts) {
      const bool made = mount.type == MountType::kFile || mount.type == MountType::kDir ||
                        mount.type == MountType::kSymlink;
      if (made && !tree_.may_create(target))
        return refuse(
            target + " would be made inside a directory of the host, where nothing is created",
            policy::member_path("filesystem.mounts", target),
            "put a tmpfs there first, or bind what it needs");
    }
    return {};
  }

  /// A mask hides a name. Where the payload can rename a directory above it, the next launch would
  /// look for the name in vain; a mount point itself cannot be renamed, nor what holds it be
  /// removed.
  Status check_masks() {
    for (const auto& [path, why] : files_.mask)
      if (const std::string writable = tree_.writable_above(path);
          !writable.empty() && parent_of(path) != writable)
        return refuse("the command could rename a directory between " + writable +
                          ", which it writes, and " + path + ", and so uncover it in the next run",
                      policy::member_path("filesystem.mask", path),
                      "mask the entry directly below " + writable + ", or make that read-only");
    return {};
  }

  /// Masks come last, so that no mount can uncover what they hide. Whoever shows just that hears
  /// why it does not appear.
  void note_covered() {
    for (const auto& [path, why] : files_.mask) {
      for (const auto& [target, mount] : files_.mounts)
        if (mount.type == MountType::kBind && is_within(target, path))
          note_covered_by(path, target);
      if (!workspace_.empty() && is_within(workspace_, path)) note_covered_by(path, workspace_);
    }
  }

  void note_covered_by(const std::string& mask, const std::string& target) {
    builder_.notes.push_back("the mask of " + mask + " hides what is shown at " + target +
                             "; to see it, --set 'filesystem.mask[" + mask + "]=null'");
  }

  void add_masks() {
    for (const auto& [path, why] : files_.mask)
      builder_.add(Phase::kMasks, MaskPath{path}, policy::member_path("filesystem.mask", path));
    for (const std::string& path : toolchain_masks_)
      builder_.add(Phase::kMasks, MaskPath{path}, "filesystem.toolchains");
  }

  PlanBuilder& builder_;
  const policy::Filesystem& files_;
  Tree tree_;
  std::string workspace_;
  std::vector<std::string> toolchain_masks_;
  bool read_only_ = false;
  bool maps_owner_ = false;  ///< The workspace's, to the session.
  bool sealed_ = false;
};

Status plan(PlanBuilder& builder) { return FileSystemPlan(builder).make(); }

std::vector<Requirement> require(const policy::Policy& policy, const Host&) {
  std::vector<Requirement> needed = {
      {"mount and pivot_root in an own mount namespace", "filesystem"}};
  for (const auto& [target, mount] : policy.filesystem.mounts)
    if (mount.type == MountType::kOverlay)
      needed.push_back({"overlays in user namespaces (Linux 5.11)",
                        policy::member_path("filesystem.mounts", target)});
  const auto& workspace = policy.filesystem.workspace;
  if (workspace && workspace->idmap == policy::IdMapping::kOwner &&
      workspace->enforce == policy::Enforce::kRequire)
    needed.push_back({"CAP_SYS_ADMIN on the host and idmapped mounts (Linux 5.12)",
                      "filesystem.workspace.idmap"});
  return needed;
}

std::string mapping_remedy(const MapOwner& map, int error) {
  const std::string otherwise = "write \"enforce\": \"prefer\" beside it to bind it as it is";
  if (error == EINVAL)
    return "the file system of " + map.path +
           ", or one that is mounted below it, cannot be "
           "idmapped (ext4, xfs and btrfs can): put the workspace on one that can, or " +
           otherwise;
  if (error == ENOSYS || error == EOPNOTSUPP)
    return "it takes the mount API of Linux 5.12, and a container's seccomp profile that allows "
           "it; or " +
           otherwise;
  if (error == EPERM)
    return "it takes CAP_SYS_ADMIN in the user namespace that has mounted the file system, which a "
           "container has not; or " +
           otherwise;
  return otherwise;
}

std::string bind_remedy(const BindMount& bind, const std::string& subject, int error,
                        const policy::Policy& policy, const Host& host) {
  const Result<SessionIds> ids = session_ids(policy.identity, host);
  const std::string uid = ids ? std::to_string(ids->uid) : "?";
  switch (error) {
    case ENOENT: {
      if (subject == bind.target)
        return "the mount point does not exist; belljar creates nothing on the host: make it "
               "there, "
               "or put the mount elsewhere";
      return "the source does not exist: make it, correct the path, or write \"optional\": true";
    }
    case EACCES:
      return "uid " + uid + ", which the command runs as, cannot reach " + bind.source +
             ": look at the owner and mode of it and "
             "of each directory above it";
    case ELOOP:
      return "links of /proc, which lead out of any root, are never followed; name what it points "
             "to";
    case ESTALE:
      if (bind.same_as < 0) return {};
      return "another directory has had that name since this one was opened: leave its name alone "
             "while a sandbox starts";
    case EROFS:
      return "the mount point would have to be made inside a read-only bind; make it on the host, "
             "or "
             "put the mount elsewhere";
    default:
      return {};
  }
}

/// What is mounted below `path` in belljar's own view; empty when nothing is.
std::string mounted_below(const std::string& path) {
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;
    if (word != path && is_within(word, path)) return word;
  }
  return {};
}

std::string overlay_remedy(const MountOverlay& overlay, const std::string& subject, int error) {
  std::vector<std::string> directories = overlay.layers;
  if (!overlay.upper.empty()) directories.insert(directories.end(), {overlay.upper, overlay.work});
  if (error == EINVAL)
    for (const std::string& directory : directories)
      if (const std::string mount = mounted_below(directory); !mount.empty())
        return "a file system is mounted at " + mount +
               ", and an overlay in a user namespace "
               "takes no directory with one below it: name directories beside it";
  switch (error) {
    case EINVAL:
      return "the kernel's log has its reason; an overlay, NFS or FAT cannot be below upper or "
             "work: leave both out for a temporary overlay";
    case ELOOP:
      return "two of the directories are the same, or one lies in the other: name others";
    case ENODEV:
      return "this kernel has no overlayfs: modprobe overlay";
    case EPERM:
      return "overlays in user namespaces take Linux 5.11 or later";
    case ENOTDIR:
      return "an overlay is made of directories, and mounted on one: name a directory";
    case ENOENT:
    case EACCES:
      if (subject == overlay.target) return {};
      return "the directory has to be there, and within reach of the uid that the command runs as: "
             "make it, or correct the path";
    default:
      return {};
  }
}

/// What is made by its step: a file, directory or link, or a mount point where one is missing.
bool is_made(const FailedStep& failed) {
  return std::visit(
      [&failed]<class Action>(const Action& action) {
        if constexpr (requires { action.may_create; }) return failed.subject == action.target;
        return std::is_same_v<Action, MakeFile> || std::is_same_v<Action, MakeDirectory> ||
               std::is_same_v<Action, MakeSymlink>;
      },
      failed.step->action);
}

/// Where things are made they cannot be in the way or out of reach, but for a temporary overlay:
/// there the names, owners and modes of the layers hold.
std::string making_remedy(int error, const std::string& uid) {
  if (error == EEXIST)
    return "a layer of the overlay that it is made in has that name already: choose another one, "
           "or bind a file or directory of the host on it";
  if (error == EACCES || error == EPERM || error == EOVERFLOW)
    return "in an overlay the owners and modes of its layers hold, and uid " + uid +
           ", which the command runs as, may not write there: let it, put a tmpfs there first, or "
           "choose another place";
  return {};
}

std::string remedy(const FailedStep& failed, const policy::Policy& policy, const Host& host) {
  if (is_made(failed)) {
    const Result<SessionIds> ids = session_ids(policy.identity, host);
    if (std::string text = making_remedy(failed.sys_errno, ids ? std::to_string(ids->uid) : "?");
        !text.empty())
      return text;
  }
  if (const auto* overlay = std::get_if<MountOverlay>(&failed.step->action))
    if (std::string text = overlay_remedy(*overlay, failed.subject, failed.sys_errno);
        !text.empty())
      return text;
  if (const auto* map = std::get_if<MapOwner>(&failed.step->action))
    return mapping_remedy(*map, failed.sys_errno);
  if (std::holds_alternative<HoldDirectories>(failed.step->action) && failed.sys_errno == EBUSY)
    return "wait for the other one to end, or give each sandbox directories of its own";
  if (const auto* bind = std::get_if<BindMount>(&failed.step->action))
    if (std::string text = bind_remedy(*bind, failed.subject, failed.sys_errno, policy, host);
        !text.empty())
      return text;
  if (failed.sys_errno == ENOENT || failed.sys_errno == EROFS)
    return "the mount point does not exist there; belljar creates nothing on the host: make it, or "
           "put "
           "the mount elsewhere";
  if (failed.sys_errno == EACCES && std::holds_alternative<AttachRoot>(failed.step->action))
    return "a security module (AppArmor) denies mounts to this caller; in a container use a "
           "profile "
           "that allows mount, umount and pivot_root, see docs/hosts.md";
  if (failed.sys_errno == EPERM)
    return "the kernel or the container's seccomp profile refuses it: allow mount, umount2 and "
           "pivot_root there, see docs/hosts.md";
  return {};
}

}  // namespace

Obstacle obstacle_to_mapping(const Host& host, const SessionIds& session) {
  constexpr std::uint64_t kSysAdmin = std::uint64_t{1} << 21;  // CAP_SYS_ADMIN
  if (host.workspace_owner && host.workspace_owner->uid == session.uid) return {};
  if (!host.privileged() || (host.capabilities & kSysAdmin) == 0)
    return {"belljar has no CAP_SYS_ADMIN", "run belljar as root"};
  if (!host.workspace_owner) return {"it cannot be looked at", "make it"};
  // What the command made would be root's, and could be made set-user-id there.
  if (host.workspace_owner->uid == 0 || host.workspace_owner->gid == 0)
    return {"it belongs to root, whose the command's files would be, set-user-id programs too",
            "chown it to whose it is"};
  return {};
}

std::string workspace_path(const policy::Policy& policy, const Host& host) {
  if (!policy.filesystem.workspace) return {};
  const std::string& path = policy.filesystem.workspace->path;
  return path == "." ? host.current_directory : path;
}

std::string home_path(const policy::Policy& policy, const Host& host) {
  switch (policy.filesystem.home.kind) {
    case HomeKind::kNone:
      return {};
    case HomeKind::kWorkspace:
      return workspace_path(policy, host);
    case HomeKind::kPrivate:
      return host.home_exists && host.home != "/" ? host.home : std::string(kStandInHome);
    case HomeKind::kPath:
      return policy.filesystem.home.path;
  }
  return {};
}

const Control kFilesystem = {
    "filesystem",
    "an own root that holds just what the policy names (flags are read back as each "
    "mount is made, through its own descriptor)",
    require,
    plan,
    nullptr,
    kProbes,
    remedy,
    kFilesystemFacts};

}  // namespace belljar::launcher
