#include "launcher/bwrap/convert.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "launcher/controls/paths.hpp"
#include "policy/names.hpp"
#include "policy/units.hpp"

namespace belljar::launcher::bwrap {
namespace {

using Json = nlohmann::ordered_json;

std::string octal(std::uint32_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", mode);
  return text.data();
}

class ToPolicy {
 public:
  ToPolicy(const Options& options, const std::string& directory, const ReadDescriptor& read)
      : options_(options), directory_(directory), read_(read) {}

  Converted make() {
    Json policy = {{"version", 1}, {"extends", {"builtin:bwrap@1"}}};
    add_identity(policy);
    add_namespaces(policy);
    for (const FileOperation& file : options_.files) add(file);
    if (!mounts_.empty()) policy["filesystem"] = {{"mounts", mounts_}};
    if (options_.net) policy["network"] = {{"mode", "none"}};
    add_capabilities(policy);
    add_environment(policy);
    note_the_rest();
    return {policy.dump(2) + "\n", std::move(missing_)};
  }

 private:
  void lack(const std::string& what) { missing_.push_back(what); }

  void add_identity(Json& policy) {
    Json identity = Json::object();
    if (options_.uid) identity["inside_uid"] = *options_.uid;
    if (options_.gid) identity["inside_gid"] = *options_.gid;
    if (options_.hostname) identity["hostname"] = *options_.hostname;
    if (!identity.empty()) policy["identity"] = std::move(identity);
  }

  void add_namespaces(Json& policy) {
    Json spaces = Json::object();
    if (options_.ipc) spaces["ipc"] = "new";
    if (options_.uts) spaces["uts"] = "new";
    if (options_.cgroup != Want::kNo) spaces["cgroup"] = "new";
    if (options_.disable_userns) spaces["nested_user"] = false;
    if (!spaces.empty()) policy["namespaces"] = std::move(spaces);
    if (!options_.pid)
      lack("without --unshare-pid: a policy's sandbox always has processes of its own");
  }

  /// Whatever was at the target or below it is covered.
  void put(const std::string& target, Json mount) {
    for (auto at = mounts_.begin(); at != mounts_.end();)
      at = is_within(at.key(), target) ? mounts_.erase(at) : std::next(at);
    mounts_[target] = std::move(mount);
  }

  [[nodiscard]] std::string absolute(const std::string& path) const {
    return path.starts_with("/") ? path : join(directory_, path);
  }

  void add(const FileOperation& file) {
    const policy::Parsed<std::string> target = policy::normalise_path(absolute_in(file.target));
    if (!target) return lack(file.text() + ": " + target.error());
    switch (file.kind) {
      case FileKind::kBind:
        return bind(file, *target);
      case FileKind::kBindDescriptor:
        return lack(file.text() + ": a policy names the path that is bound");
      case FileKind::kRemountReadOnly:
        // A policy's own root always is.
        if (*target == "/" && !mounts_.contains("/")) return;
        if (!mounts_.contains(*target)) return lack(file.text() + ": nothing is mounted there");
        mounts_[*target]["readonly"] = true;
        return;
      case FileKind::kChmod:
        if (!mounts_.contains(*target) || mounts_[*target]["type"] == "bind")
          return lack(file.text() + ": a policy changes no modes of what it does not make");
        mounts_[*target]["mode"] = octal(*file.mode);
        return;
      case FileKind::kTmpfs:
        return put(*target, tmpfs(file));
      case FileKind::kMqueue:
        return put(*target, {{"type", "mqueue"}});
      case FileKind::kProc:
        return put(*target, {{"type", "proc"}});
      case FileKind::kDev:
        return put(*target, {{"type", "dev"}});
      case FileKind::kDirectory:
        if (is_made(*target)) mounts_[*target] = with_mode({{"type", "dir"}}, file);
        return;
      case FileKind::kFile:
      case FileKind::kBindData:
        return content(file, *target);
      case FileKind::kSymlink:
        mounts_[*target] = {{"type", "symlink"}, {"source", file.source}};
        return;
      case FileKind::kOverlay:
        return overlay(file, *target);
    }
  }

  static std::string absolute_in(const std::string& target) {
    return target.starts_with("/") ? target : "/" + target;
  }

  /// A directory that is there already, as a mount or on the way to one, is not made again.
  [[nodiscard]] bool is_made(const std::string& target) const {
    for (const auto& [path, mount] : mounts_.items())
      if (is_within(path, target)) return false;
    return target != "/";
  }

  static Json with_mode(Json mount, const FileOperation& file) {
    if (file.mode) mount["mode"] = octal(*file.mode);
    return mount;
  }

  static Json tmpfs(const FileOperation& file) {
    Json mount = with_mode({{"type", "tmpfs"}}, file);
    if (file.size != 0) mount["size"] = std::to_string(file.size) + "B";
    return mount;
  }

  void bind(const FileOperation& file, const std::string& target) {
    Json mount = {{"type", "bind"}, {"source", absolute(file.source)}, {"readonly", file.readonly}};
    if (file.devices) mount["nodev"] = false;
    if (file.optional) mount["optional"] = true;
    put(target, std::move(mount));
  }

  void content(const FileOperation& file, const std::string& target) {
    const Result<std::string> data = read_(file.descriptor);
    if (!data) return lack(file.text() + ": the descriptor cannot be read");
    Json mount = {{"type", "file"}, {"content", *data}};
    mount["mode"] = octal(file.mode.value_or(file.kind == FileKind::kFile ? 0666 : 0600));
    try {
      (void)mount.dump();
    } catch (const Json::exception&) {
      return lack(file.text() + ": its content is no UTF-8 text");
    }
    mounts_[target] = std::move(mount);
  }

  void overlay(const FileOperation& file, const std::string& target) {
    Json mount = {{"type", "overlay"}};
    for (const std::string& layer : file.layers) mount["lower"].push_back(absolute(layer));
    if (file.readonly) mount["readonly"] = true;
    if (!file.readonly && !file.memory) {
      mount["upper"] = absolute(file.source);
      mount["work"] = absolute(file.work);
    }
    put(target, std::move(mount));
  }

  void add_capabilities(Json& policy) {
    std::uint64_t keep = 0;
    for (const CapabilityChange& change : options_.capabilities)
      keep = change.add ? keep | change.bits : keep & ~change.bits;
    if (keep == 0) return;
    for (const policy::NamedNumber& known : policy::capability_names())
      if (keep >> known.number & 1) policy["capabilities"].push_back(known.name);
  }

  void add_environment(Json& policy) {
    Json set = Json::object(), deny = Json::array();
    bool cleared = false;
    for (const EnvironmentChange& change : options_.environment) {
      using Kind = EnvironmentChange::Kind;
      if (change.kind == Kind::kClear) set = Json::object(), deny = Json::array(), cleared = true;
      if (change.kind == Kind::kSet) set[change.name] = change.value;
      if (change.kind != Kind::kUnset) continue;
      set.erase(change.name);
      if (!cleared) deny.push_back(change.name);
    }
    Json environment = Json::object();
    if (cleared) environment["pass"] = Json::array();
    if (!deny.empty()) environment["deny"] = std::move(deny);
    if (!set.empty()) environment["set"] = std::move(set);
    if (!environment.empty()) policy["env"] = std::move(environment);
  }

  void note_the_rest() {
    const auto lack_if = [this](bool given, const char* what) {
      if (given) lack(what);
    };
    lack_if(options_.directory.has_value(), "--chdir: give belljar run -w DIR");
    lack_if(options_.argv0.has_value(), "--argv0");
    lack_if(!options_.lock_files.empty(), "--lock-file");
    lack_if(options_.sync_fd >= 0, "--sync-fd");
    lack_if(options_.block_fd >= 0, "--block-fd");
    lack_if(options_.userns_block_fd >= 0, "--userns-block-fd");
    lack_if(options_.info_fd >= 0, "--info-fd: give belljar run --status-fd N");
    lack_if(options_.status_fd >= 0, "--json-status-fd: give belljar run --status-fd N");
    lack_if(options_.seccomp >= 0 || !options_.filters.empty(),
            "a compiled filter: write its calls into syscalls.rules");
    lack_if(options_.userns >= 0, "--userns: namespaces.user takes a path");
    lack_if(options_.userns2 >= 0, "--userns2");
    lack_if(options_.pidns >= 0, "--pidns");
    lack_if(options_.as_pid_1, "--as-pid-1");
    lack_if(options_.userns_disabled, "--assert-userns-disabled");
  }

  const Options& options_;
  const std::string& directory_;
  const ReadDescriptor& read_;
  Json mounts_ = Json::object();
  std::vector<std::string> missing_;
};

class ToArguments {
 public:
  explicit ToArguments(const policy::Policy& policy) : policy_(policy) {}

  Arguments make() {
    say({"--die-with-parent", "--new-session", "--unshare-user", "--unshare-pid"});
    add_namespaces();
    add_identity();
    for (const auto& [target, mount] : policy_.filesystem.mounts) add(target, mount);
    add_filesystem();
    add_environment();
    for (const std::string& name : policy_.capabilities) say({"--cap-add", name});
    note_the_rest();
    return std::move(made_);
  }

 private:
  void say(std::initializer_list<std::string> words) {
    made_.words.insert(made_.words.end(), words);
  }
  void lack(const std::string& path) { made_.missing.push_back(path); }
  void lack_if(bool set, const char* path) {
    if (set) lack(path);
  }

  void add_namespaces() {
    using Mode = policy::NamespaceMode;
    const policy::Namespaces& spaces = policy_.namespaces;
    if (spaces.ipc == Mode::kNew) say({"--unshare-ipc"});
    if (spaces.uts == Mode::kNew) say({"--unshare-uts"});
    if (spaces.cgroup == Mode::kNew) say({"--unshare-cgroup"});
    if (!spaces.nested_user) say({"--disable-userns"});
    using Net = policy::NetworkMode;
    if (policy_.network.mode == Net::kNone) say({"--unshare-net"});
    lack_if(policy_.network.mode == Net::kPrivate || policy_.network.mode == Net::kJoin,
            "network.mode");
    lack_if(spaces.user == Mode::kJoin, "namespaces.user");
    lack_if(spaces.ipc == Mode::kJoin || spaces.uts == Mode::kJoin || spaces.cgroup == Mode::kJoin,
            "namespaces");
    lack_if(spaces.time != Mode::kShared, "namespaces.time");
  }

  void add_identity() {
    const policy::Identity& identity = policy_.identity;
    if (identity.inside_uid) say({"--uid", std::to_string(*identity.inside_uid)});
    if (identity.inside_gid) say({"--gid", std::to_string(*identity.inside_gid)});
    if (identity.hostname) say({"--hostname", *identity.hostname});
    using From = policy::Id::From;
    lack_if(identity.uid.from != From::kCaller, "identity.uid");
    lack_if(identity.gid.from != From::kCaller, "identity.gid");
    lack_if(identity.ids.has_value(), "identity.ids");
    lack_if(!identity.groups.empty(), "identity.groups");
    lack_if(identity.umask != policy::Identity().umask, "identity.umask");
  }

  void add_mode(const policy::Mount& mount) {
    if (mount.mode) say({"--perms", octal(*mount.mode)});
  }

  void add(const std::string& target, const policy::Mount& mount) {
    const std::string where = policy::member_path("filesystem.mounts", target);
    using Type = policy::MountType;
    switch (mount.type) {
      case Type::kBind:
        add_bind(target, mount);
        break;
      case Type::kTmpfs:
        add_mode(mount);
        if (mount.size) say({"--size", std::to_string(*mount.size)});
        say({"--tmpfs", target});
        if (mount.readonly) say({"--remount-ro", target});
        break;
      case Type::kProc:
        say({"--proc", target});
        break;
      case Type::kDev:
        say({"--dev", target});
        break;
      case Type::kMqueue:
        say({"--mqueue", target});
        break;
      case Type::kDir:
        add_mode(mount);
        say({"--dir", target});
        break;
      case Type::kSymlink:
        say({"--symlink", mount.source, target});
        break;
      case Type::kFile:
        lack(where + ": content comes by a descriptor (--file FD " + target + ")");
        break;
      case Type::kOverlay:
        add_overlay(target, mount);
        break;
    }
    const bool flags = mount.noexec || mount.noatime || !mount.nosuid;
    lack_if(flags, (where + ": noexec, noatime and nosuid cannot be chosen").c_str());
    lack_if(mount.inodes.has_value(), (where + ".inodes").c_str());
    const bool sized = mount.type == Type::kDev || mount.type == Type::kOverlay;
    lack_if(sized && mount.size.has_value(), (where + ".size").c_str());
    lack_if(mount.type == Type::kOverlay && mount.mode.has_value(), (where + ".mode").c_str());
    lack_if(mount.type == Type::kProc && mount.readonly, (where + ".readonly").c_str());
    lack_if(mount.subset != policy::ProcSubset::kAll || mount.hidepid != policy::HidePid::kOff,
            (where + ": subset, hidepid").c_str());
  }

  void add_bind(const std::string& target, const policy::Mount& mount) {
    std::string option = mount.readonly ? "--ro-bind" : mount.nodev ? "--bind" : "--dev-bind";
    if (mount.optional) option += "-try";
    say({option, mount.source, target});
    lack_if(mount.readonly && !mount.nodev,
            (policy::member_path("filesystem.mounts", target) + ".nodev").c_str());
  }

  void add_overlay(const std::string& target, const policy::Mount& mount) {
    std::vector<std::string> layers = mount.lower;
    if (mount.readonly && !mount.upper.empty()) layers.push_back(mount.upper);
    for (const std::string& layer : layers) say({"--overlay-src", layer});
    if (mount.readonly)
      say({"--ro-overlay", target});
    else if (mount.upper.empty())
      say({"--tmp-overlay", target});
    else
      say({"--overlay", mount.upper, mount.work, target});
  }

  void add_filesystem() {
    const policy::Filesystem& files = policy_.filesystem;
    if (files.workspace && files.workspace->path != ".") {
      const std::string& path = files.workspace->path;
      say({files.workspace->readonly ? "--ro-bind" : "--bind", path, path, "--chdir", path});
    }
    lack_if(files.workspace && files.workspace->path == ".", "filesystem.workspace.path");
    lack_if(files.workspace && files.workspace->idmap != policy::IdMapping::kNone,
            "filesystem.workspace.idmap");
    lack_if(files.root == policy::RootKind::kHost, "filesystem.root");
    lack_if(!files.mask.empty(), "filesystem.mask");
    lack_if(files.toolchains, "filesystem.toolchains");
    lack_if(files.home.kind != policy::HomeKind::kNone, "filesystem.home");
    if (files.root == policy::RootKind::kEmpty && !files.mounts.contains("/"))
      say({"--remount-ro", "/"});
  }

  void add_environment() {
    const policy::Environment& env = policy_.env;
    const bool all = env.pass == std::vector<std::string>{"*"};
    if (!all) say({"--clearenv"});
    lack_if(!all && !env.pass.empty(), "env.pass");
    for (const std::string& name : env.deny) {
      const bool glob = name.find_first_of("*?") != std::string::npos;
      if (all && !glob) say({"--unsetenv", name});
      lack_if(all && glob, ("env.deny: " + name).c_str());
    }
    for (const auto& [name, value] : env.set) say({"--setenv", name, value});
  }

  void note_the_rest() {
    const policy::Syscalls& calls = policy_.syscalls;
    lack_if(calls.base != policy::SyscallBase::kNone || !calls.rules.empty() ||
                calls.default_action || calls.mode != policy::SyscallMode::kEnforce,
            "syscalls");
    lack_if(!policy_.network.publish.empty(), "network.publish");
    lack_if(policy_.landlock.asks_for_something(), "landlock");
    const policy::Limits& limits = policy_.limits;
    lack_if(limits.wall_time || limits.cpu_time || limits.output || limits.disk || limits.memory ||
                limits.swap || limits.processes || limits.cpus || !limits.rlimits.empty(),
            "limits");
    const policy::Io& io = policy_.io;
    lack_if(io.tty != policy::Tty::kNone, "io.tty");
    lack_if(io.standard_input != policy::Stdio::kInherit, "io.stdin");
    lack_if(io.standard_output != policy::Stdio::kInherit, "io.stdout");
    lack_if(io.standard_error != policy::Stdio::kInherit, "io.stderr");
    lack_if(!io.keep.empty(), "io.keep");
    lack_if(!policy_.tests.empty(), "tests");
  }

  const policy::Policy& policy_;
  Arguments made_;
};

}  // namespace

Converted to_policy(const Options& options, const std::string& directory,
                    const ReadDescriptor& read) {
  return ToPolicy(options, directory, read).make();
}

Arguments to_arguments(const policy::Policy& policy) { return ToArguments(policy).make(); }

}  // namespace belljar::launcher::bwrap
