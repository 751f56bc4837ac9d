#include "launcher/exposure.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>

#include "launcher/can.hpp"
#include "launcher/controls/control.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/session_eyes.hpp"
#include "launcher/settings.hpp"
#include "launcher/sys/kernel.hpp"
#include "launcher/sys/landlock.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "launcher/view.hpp"

namespace belljar::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using sys::UniqueFd;

/// A file that is known to hold a secret. `below` ends the path of its directory; empty: wherever
/// it lies. Names are patterns where they hold a star.
struct KnownSecret {
  std::string_view name;
  std::string_view below;
  std::string_view why;
};

constexpr auto kSecrets = std::to_array<KnownSecret>({
    {"id_rsa", "/.ssh", "an SSH key: logs in as its owner wherever the public half is trusted"},
    {"id_dsa", "/.ssh", "an SSH key: logs in as its owner wherever the public half is trusted"},
    {"id_ecdsa", "/.ssh", "an SSH key: logs in as its owner wherever the public half is trusted"},
    {"id_ecdsa_sk", "/.ssh", "an SSH key's handle: with its token, logs in as its owner"},
    {"id_ed25519", "/.ssh", "an SSH key: logs in as its owner wherever the public half is trusted"},
    {"id_ed25519_sk", "/.ssh", "an SSH key's handle: with its token, logs in as its owner"},
    {"identity", "/.ssh", "an SSH key: logs in as its owner wherever the public half is trusted"},
    {"ssh_host_*_key", "/etc/ssh", "a host key: plays this host to SSH clients"},
    {"credentials", "/.aws", "AWS access keys"},
    {"*.json", "/.aws/sso/cache", "AWS single sign-on tokens"},
    {"credentials.db", "/gcloud", "Google Cloud refresh tokens"},
    {"access_tokens.db", "/gcloud", "Google Cloud access tokens"},
    {"application_default_credentials.json", "", "Google Cloud credentials"},
    {"accessTokens.json", "/.azure", "Azure access tokens"},
    {"msal_token_cache.json", "/.azure", "Azure tokens"},
    {"msal_token_cache.bin", "/.azure", "Azure tokens"},
    {"credentials", "/.oci", "Oracle Cloud credentials"},
    {"config.yaml", "/doctl", "a DigitalOcean token"},
    {".netrc", "", "logins for machines, in plain text"},
    {".npmrc", "", "npm tokens: publishes packages as their owner"},
    {".yarnrc.yml", "", "npm tokens: publishes packages as their owner"},
    {".pypirc", "", "PyPI tokens: publishes packages as their owner"},
    {"credentials", "/.gem", "RubyGems keys: publishes packages as their owner"},
    {"credentials", "/.cargo", "crates.io tokens: publishes packages as their owner"},
    {"credentials.toml", "/.cargo", "crates.io tokens: publishes packages as their owner"},
    {"settings.xml", "/.m2", "Maven servers' passwords"},
    {"gradle.properties", "/.gradle", "often signing keys and repository passwords"},
    {".git-credentials", "", "git passwords, in plain text"},
    {"credentials", "/git", "git passwords, in plain text"},
    {"hosts.yml", "/gh", "a GitHub token"},
    {"config.yml", "/glab-cli", "a GitLab token"},
    {"config.json", "/.docker", "registry logins"},
    {"auth.json", "/containers", "registry logins"},
    {"config", "/.kube", "cluster credentials"},
    {"token", "/run/secrets/kubernetes.io/serviceaccount", "a service account's token"},
    {"admin.conf", "/etc/kubernetes", "the cluster administrator's credentials"},
    {"credentials.tfrc.json", "/.terraform.d", "Terraform tokens"},
    {"*.tfstate", "", "Terraform's state, which holds secrets in plain text"},
    {".vault-token", "", "a Vault token"},
    {".pgpass", "", "PostgreSQL passwords"},
    {".my.cnf", "", "MySQL passwords"},
    {".s3cfg", "", "S3 access keys"},
    {".boto", "", "cloud storage keys"},
    {"rclone.conf", "", "cloud storage logins"},
    {".env", "", "a project's secrets"},
    {".env.*", "", "a project's secrets"},
    {"secring.gpg", "/.gnupg", "private keys"},
    {"*.key", "/.gnupg/private-keys-v1.d", "a private key"},
    {"krb5cc_*", "", "a Kerberos ticket"},
    {"krb5.keytab", "/etc", "the host's Kerberos keys"},
    {"logins.json", "", "a browser's passwords"},
    {"cookies.sqlite", "", "a browser's sessions"},
    {"Login Data", "", "a browser's passwords"},
    {"login.keyring", "/keyrings", "a desktop's passwords"},
    {"shadow", "/etc", "password hashes"},
    {"shadow-", "/etc", "password hashes"},
    {"gshadow", "/etc", "password hashes of groups"},
    {"gshadow-", "/etc", "password hashes of groups"},
    {"*", "/etc/ssl/private", "a private key"},
    {"*", "/etc/NetworkManager/system-connections", "network passwords"},
    {"wpa_supplicant.conf", "", "network passwords"},
    {"credentials.json", "/.claude", "an agent's own login"},
    {".credentials.json", "/.claude", "an agent's own login"},
    {"auth.json", "/.codex", "an agent's own login"},
});

/// The table by name; the few patterns are tried one by one.
class SecretNames {
 public:
  SecretNames() {
    for (const KnownSecret& row : kSecrets) {
      if (row.name.find('*') == std::string_view::npos)
        plain_.emplace(row.name, &row);
      else
        patterns_.push_back(&row);
    }
  }

  /// Why the file may be one, or null.
  [[nodiscard]] const KnownSecret* find(const std::string& directory, const char* name) const {
    const auto [from, to] = plain_.equal_range(name);
    for (auto row = from; row != to; ++row)
      if (directory.ends_with(row->second->below)) return row->second;
    for (const KnownSecret* row : patterns_)
      if (directory.ends_with(row->below) && fnmatch(std::string(row->name).c_str(), name, 0) == 0)
        return row;
    return nullptr;
  }

 private:
  std::unordered_multimap<std::string_view, const KnownSecret*> plain_;
  std::vector<const KnownSecret*> patterns_;
};

struct SecretVariable {
  const char* pattern;
  std::string_view why;
};
constexpr auto kVariables = std::to_array<SecretVariable>({
    {"*TOKEN*", "named as a token is"},
    {"*SECRET*", "named as a secret is"},
    {"*PASSW*", "named as a password is"},
    {"*PASSPHRASE*", "named as a password is"},
    {"*CREDENTIAL*", "named as credentials are"},
    {"*PRIVATE*KEY*", "named as a private key is"},
    {"*API*KEY*", "named as an API key is"},
    {"*ACCESS*KEY*", "named as an access key is"},
    {"*_KEY", "named as a key is"},
    {"*_AUTH", "named as a login is"},
    {"AWS_SESSION*", "AWS credentials"},
    {"SSH_AUTH_SOCK", "the way to an SSH agent, which signs for its owner"},
});

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

/// File systems that hold no files of anybody's, or that could make a walk wait for a server.
const char* reason_to_pass(const UniqueFd& directory) {
  constexpr long kFuse = 0x65735546, kCifs = 0xFF534D42, kSmb2 = 0xFE534D42, kCeph = 0x00C36400;
  struct statfs system {};
  if (fstatfs(directory.get(), &system) != 0) return "it cannot be looked at";
  const auto type = static_cast<long>(system.f_type);
  if (type == PROC_SUPER_MAGIC || type == SYSFS_MAGIC || type == CGROUP_SUPER_MAGIC ||
      type == CGROUP2_SUPER_MAGIC || type == DEBUGFS_MAGIC || type == TRACEFS_MAGIC)
    return "the kernel's own file system";
  if (type == kFuse || type == NFS_SUPER_MAGIC || type == kCifs || type == kSmb2 || type == kCeph)
    return "a file system that a server answers for";
  return nullptr;
}

class Walk {
 public:
  Walk(const Plan& plan, const policy::Policy& policy, const Host& host,
       const ExposureBounds& bounds)
      : plan_(plan),
        policy_(policy),
        host_(host),
        bounds_(bounds),
        view_(plan, policy),
        end_(Clock::now() + bounds.time) {}

  Exposure run() {
    look_at_variables();
    look_at_abstract_sockets();
    look_at_path();
    for (const Step& step : plan_.steps) {
      if (const auto* bind = std::get_if<BindMount>(&step.action))
        walk_bind(bind->source, bind->target, bind->flags, step);
      if (const auto* overlay = std::get_if<MountOverlay>(&step.action))
        walk_layers(*overlay, step);
      const auto* root = std::get_if<AttachRoot>(&step.action);
      if (root != nullptr && root->source) walk_bind(*root->source, "/", root->flags, step);
    }
    const auto key = [](const Finding& finding) { return std::tie(finding.kind, finding.what); };
    std::ranges::sort(exposure_.findings,
                      [&](const Finding& a, const Finding& b) { return key(a) < key(b); });
    return std::move(exposure_);
  }

 private:
  void add(Finding finding) {
    if (exposure_.findings.size() < bounds_.findings)
      exposure_.findings.push_back(std::move(finding));
    else
      stop("more than " + std::to_string(bounds_.findings) + " findings");
  }

  void stop(const std::string& why) {
    if (!stopped_) exposure_.not_looked_at.push_back("the rest: " + why);
    stopped_ = true;
  }

  void pass_over(const std::string& path, const std::string& why) {
    constexpr std::size_t kMost = 20;
    if (exposure_.not_looked_at.size() < kMost)
      exposure_.not_looked_at.push_back(path + ": " + why);
  }

  /// One more entry; false when it is one too many.
  bool count() {
    if (stopped_) return false;
    if (++exposure_.entries > bounds_.entries)
      stop("more than " + std::to_string(bounds_.entries) + " entries");
    else if (exposure_.entries % 256 == 0 && Clock::now() > end_)
      stop("it took more than " + std::to_string(bounds_.time.count()) + " ms");
    return !stopped_;
  }

  // --- what is not a file -----------------------------------------------------------------------

  void look_at_variables() {
    for (const std::string& entry : plan_.environment) {
      const std::string name = entry.substr(0, entry.find('='));
      const std::string_view why = why_secret(name, entry.substr(name.size() + 1));
      if (why.empty()) continue;
      const bool is_set = policy_.env.set.contains(name);
      std::vector<std::string> denied = policy_.env.deny;
      denied.push_back(name);
      const std::string set_path = policy::member_path("env.set", name);
      add({ExposureKind::kSecretVariable, name, std::string(why),
           view_.origin(is_set ? set_path : "env.pass"),
           is_set ? set_path + "=null" : setting_of_texts("env.deny", denied)});
    }
  }

  static std::string_view why_secret(const std::string& name, const std::string& value) {
    for (const SecretVariable& row : kVariables)
      if (fnmatch(row.pattern, name.c_str(), 0) == 0) return row.why;
    if (fnmatch("*://*:*@*", value.c_str(), 0) == 0) return "an address with a password in it";
    return {};
  }

  void look_at_abstract_sockets() {
    if (policy_.network.mode == policy::NetworkMode::kJoin)
      pass_over(policy_.network.mode.path, "the sockets of a namespace that is joined");
    if (!shares_network(policy_, host_)) return;
    for (const Step& step : plan_.steps)
      if (const auto* domain = std::get_if<TakeLandlock>(&step.action);
          domain != nullptr && (domain->scopes & sys::kLandlockScopeAbstractUnix) != 0)
        return;
    std::vector<std::string> scopes = {"abstract_unix_socket"};
    for (const policy::LandlockScope scope : policy_.landlock.scopes)
      if (scope == policy::LandlockScope::kSignal) scopes.emplace_back("signal");
    for (const std::string& name : abstract_sockets())
      add({ExposureKind::kAbstractSocket, "@" + name,
           "any program in this network namespace can connect: the file system does not hold it",
           view_.origin("network.mode"), setting_of_texts("landlock.scopes", scopes)});
  }

  /// Those of this network namespace.
  static std::set<std::string> abstract_sockets() {
    std::ifstream list("/proc/net/unix");
    std::set<std::string> names;
    for (std::string line; std::getline(list, line);)
      if (const std::size_t at = line.find(" @"); at != std::string::npos)
        names.insert(line.substr(at + 2));
    return names;
  }

  // --- PATH -------------------------------------------------------------------------------------

  /// What the command starts by name may be what an earlier command put there.
  void look_at_path() {
    std::vector<std::string> directories;
    for (const std::string& entry : plan_.environment) {
      if (!entry.starts_with("PATH=")) continue;
      std::string_view rest = std::string_view(entry).substr(5);
      for (std::size_t colon = 0; colon != std::string_view::npos;) {
        colon = rest.find(':');
        directories.emplace_back(rest.substr(0, colon));
        if (colon != std::string_view::npos) rest.remove_prefix(colon + 1);
      }
    }
    for (const std::string& directory : directories) look_at_path_entry(directory, directories);
  }

  void look_at_path_entry(const std::string& directory, const std::vector<std::string>& all) {
    std::string without;
    for (const std::string& other : all)
      if (other != directory) without += (without.empty() ? "" : ":") + other;
    // A part that is empty is the current directory (man 7 environ).
    const std::string start =
        directory.starts_with("/") ? directory : join(plan_.directory, directory);
    const std::optional<std::string> path = view_.follow(start);
    const std::string on_host = path ? view_.on_host(*path) : std::string();
    if (on_host.empty()) return;
    const std::string change = setting_of_text("env.set.PATH", without);
    if (is_writable(*path))
      return add({ExposureKind::kWritableOnPath, *path,
                  "a directory on PATH: whoever can write there decides what a name starts",
                  view_.line(view_.covering(*path)), change});
    const Directory list(opendir(on_host.c_str()));
    while (const dirent* entry = list ? readdir(list.get()) : nullptr) {
      if (!count()) return;
      const std::string file = join(*path, entry->d_name);
      struct stat about {};
      if (fstatat(dirfd(list.get()), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISREG(about.st_mode) && (about.st_mode & 0111) != 0 && is_writable(file))
        add({ExposureKind::kWritableOnPath, file, "a program on PATH that can be replaced",
             view_.line(view_.covering(file)), change});
    }
  }

  [[nodiscard]] bool is_writable(const std::string& path) const {
    const Result<Answer> answer = can(Verb::kWrite, path, plan_, policy_, host_);
    return answer && answer->yes;
  }

  // --- files ------------------------------------------------------------------------------------

  struct Place {
    const Step& step;
    unsigned flags;
    std::string layer{};   ///< Of an overlay: another may have the same name above it.
    std::string target{};  ///< Where the overlay is.
  };

  void walk_layers(const MountOverlay& overlay, const Step& step) {
    if (&view_.covering(overlay.target) != &step) return;
    std::vector<std::string> layers = overlay.layers;
    if (!overlay.upper.empty()) layers.push_back(overlay.upper);
    for (const std::string& layer : layers) {
      const UniqueFd top = open_source(layer);
      if (!top.valid() || stopped_) continue;
      walk(UniqueFd(openat(top.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), overlay.target,
           Place{step, overlay.flags, layer, overlay.target}, 0);
    }
  }

  /// Whether it is seen, and not what a layer above has there.
  [[nodiscard]] bool is_seen(const std::string& inside, const Place& place) const {
    return place.layer.empty() ||
           view_.on_host(inside) == place.layer + inside.substr(place.target.size());
  }

  void walk_bind(const std::string& source, const std::string& target, unsigned flags,
                 const Step& step) {
    if (&view_.covering(target) != &step || stopped_) return;
    if (const auto* bind = std::get_if<BindMount>(&step.action); bind != nullptr && bind->mapped)
      return pass_over(target, "its owner is mapped");
    const UniqueFd top = open_source(source);
    if (!top.valid()) return;
    const Place place{step, flags, {}, {}};
    struct stat about {};
    if (fstat(top.get(), &about) != 0) return;
    if (!S_ISDIR(about.st_mode)) {
      if (count()) look_at(AT_FDCWD, source.c_str(), target, about, place);
      return;
    }
    walk(UniqueFd(openat(top.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), target, place, 0);
  }

  /// As the launch opens it: through no link.
  static UniqueFd open_source(const std::string& source) {
    sys::OpenHow how;
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = sys::kResolveNoSymlinks | sys::kResolveNoMagicLinks;
    long fd = sys::raw(SYS_openat2, AT_FDCWD, source.c_str(), &how, sizeof how);
    if (fd == -ENOSYS) fd = open(source.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return UniqueFd(static_cast<int>(fd < 0 ? -1 : fd));
  }

  void walk(UniqueFd fd, const std::string& path, const Place& place, int depth) {
    constexpr int kDeepest = 128;
    if (!fd.valid()) {
      // Without the right to list, names that are known can still be used.
      ++exposure_.unlisted;
      return;
    }
    if (depth > kDeepest) return pass_over(path, "it lies too deep");
    if (const char* why = reason_to_pass(fd)) return pass_over(path, why);
    const Directory list(fdopendir(fd.release()));
    while (const dirent* entry = list ? readdir(list.get()) : nullptr) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (!count()) return;
      const std::string inside = join(path, name);
      struct stat about {};
      if (view_.is_target(inside) ||
          fstatat(dirfd(list.get()), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        continue;
      if (S_ISDIR(about.st_mode))
        descend(dirfd(list.get()), entry->d_name, inside, place, depth + 1);
      else
        look_at(dirfd(list.get()), entry->d_name, inside, about, place);
    }
  }

  void descend(int parent, const char* name, const std::string& inside, const Place& place,
               int depth) {
    UniqueFd below(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!below.valid() && faccessat(parent, name, X_OK, AT_EACCESS) != 0) return;
    walk(std::move(below), inside, place, depth);
  }

  void look_at(int parent, const char* name, const std::string& inside, const struct stat& about,
               const Place& place) {
    if (!is_seen(inside, place)) return;
    const auto allows = [&](int wanted) {
      return faccessat(parent, name, wanted, AT_EACCESS) == 0;
    };
    if (S_ISSOCK(about.st_mode) && allows(W_OK))
      return show(ExposureKind::kUnixSocket, inside,
                  "whoever listens there can be spoken to, on a read-only mount too", place);
    if (S_ISFIFO(about.st_mode) && (allows(R_OK) || allows(W_OK)))
      return show(ExposureKind::kFifo, inside,
                  "whoever is at its other end can be reached, on a read-only mount too", place);
    const bool is_device = S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode);
    if (is_device && !(place.flags & kNoDev) && (allows(R_OK) || allows(W_OK)))
      return show(ExposureKind::kDevice, inside, "a device that can be opened: the mount has dev",
                  place);
    if (!S_ISREG(about.st_mode)) return;
    look_at_privileges(parent, name, inside, about, place);
    const KnownSecret* secret = secrets_.find(parent_of(inside), name);
    if (secret != nullptr && allows(R_OK))
      show(ExposureKind::kSecretFile, inside, std::string(secret->why), place);
  }

  void look_at_privileges(int parent, const char* name, const std::string& inside,
                          const struct stat& about, const Place& place) {
    std::string what;
    if (about.st_mode & S_ISUID) what = "setuid of uid " + std::to_string(about.st_uid);
    if ((about.st_mode & S_ISGID) != 0 && (about.st_mode & S_IXGRP) != 0)
      what += (what.empty() ? "" : ", ") + ("setgid of gid " + std::to_string(about.st_gid));
    if ((about.st_mode & 0111) != 0 && has_capabilities(parent, name))
      what += std::string(what.empty() ? "" : ", ") + "with file capabilities";
    if (what.empty()) return;
    what += place.flags & kNoSuid
                ? ": worth nothing here, the mount is nosuid and no_new_privs is set"
                : ": worth nothing here, since no_new_privs is set";
    show(ExposureKind::kPrivilegedFile, inside, std::move(what), place);
  }

  static bool has_capabilities(int parent, const char* name) {
    // There is no *at form, and no descriptor to be had without opening the file.
    if (parent == AT_FDCWD) return lgetxattr(name, "security.capability", nullptr, 0) > 0;
    const std::string path = "/proc/self/fd/" + std::to_string(parent) + "/" + name;
    return lgetxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  }

  void show(ExposureKind kind, const std::string& inside, std::string worth, const Place& place) {
    add({kind, inside, std::move(worth), view_.line(place.step), masking(inside)});
  }

  /// A mask below a directory that the command writes has to stand directly below the mount, or
  /// the command could rename what lies between.
  [[nodiscard]] std::string masking(const std::string& inside) const {
    std::string path = inside;
    const Step& step = view_.covering(parent_of(inside));
    if (const auto* bind = std::get_if<BindMount>(&step.action);
        bind != nullptr && !(bind->flags & kReadOnly) && bind->target != inside)
      path = inside.substr(0, inside.find('/', bind->target.size() + 1));
    if (const auto* overlay = std::get_if<MountOverlay>(&step.action);
        overlay != nullptr && !overlay->upper.empty())
      path = inside.substr(0, inside.find('/', overlay->target.size() + 1));
    return setting_that_masks(path, "not for the command");
  }

  const Plan& plan_;
  const policy::Policy& policy_;
  const Host& host_;
  const ExposureBounds& bounds_;
  const View view_;
  const Clock::time_point end_;
  const SecretNames secrets_;
  Exposure exposure_;
  bool stopped_ = false;
};

struct KindText {
  const char* name;
  const char* title;
};
constexpr std::array<KindText, 8> kKinds = {{
    {"unix-socket", "unix sockets that can be connected to"},
    {"abstract-socket", "abstract unix sockets that can be connected to"},
    {"fifo", "FIFOs that can be opened"},
    {"device", "devices that can be opened"},
    {"privileged-file", "programs with privileges of their own"},
    {"writable-on-path", "what can be written on PATH"},
    {"secret-file", "files that are known to hold secrets, readable"},
    {"secret-variable", "variables that look like secrets"},
}};

}  // namespace

const char* exposure_name(ExposureKind kind) { return kKinds[static_cast<std::size_t>(kind)].name; }

Result<Exposure> find_exposure(const Plan& plan, const policy::Policy& policy, const Host& host,
                               const ExposureBounds& bounds) {
  sys::SessionCredentials session(host.uid, host.gid, host.capabilities);
  BELLJAR_CHECK(look_as_session(session, plan, host));
  Host inside = host;
  inside.capabilities = 0;
  inside.uid = plan.uid;
  inside.gid = plan.gid;
  Exposure found = Walk(plan, policy, inside, bounds).run();
  BELLJAR_CHECK(session.leave());
  return found;
}

std::string exposure_text(const Exposure& exposure, const Plan& plan,
                          const policy::Policy& policy) {
  std::string text = "exposure of uid " + std::to_string(plan.uid) + " under " + policy.name +
                     ": " + std::to_string(exposure.findings.size()) +
                     (exposure.findings.size() == 1 ? " finding\n" : " findings\n");
  for (std::size_t i = 0; i < exposure.findings.size(); ++i) {
    const Finding& finding = exposure.findings[i];
    if (i == 0 || exposure.findings[i - 1].kind != finding.kind)
      text += "\n" + std::string(kKinds[static_cast<std::size_t>(finding.kind)].title) + "\n";
    text += "  " + finding.what + "\n      " + finding.worth + "\n      shown by " +
            finding.policy + "\n      hide it: " + as_option(finding.change) + "\n";
  }
  if (exposure.unlisted != 0)
    text +=
        "\ndirectories that can be passed, but not listed, so that only who knows a name finds "
        "it there: " +
        std::to_string(exposure.unlisted) + "\n";
  if (!exposure.not_looked_at.empty()) text += "\nnot looked at\n";
  for (const std::string& left : exposure.not_looked_at) text += "  " + left + "\n";
  return text;
}

std::string exposure_json(const Exposure& exposure, const Plan& plan,
                          const policy::Policy& policy) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["policy"] = policy.name;
  json["uid"] = plan.uid;
  json["entries"] = exposure.entries;
  json["unlisted"] = exposure.unlisted;
  json["not_looked_at"] = exposure.not_looked_at;
  json["findings"] = Json::array();
  for (const Finding& finding : exposure.findings)
    json["findings"].push_back({{"kind", exposure_name(finding.kind)},
                                {"what", finding.what},
                                {"worth", finding.worth},
                                {"policy", finding.policy},
                                {"change", finding.change}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace belljar::launcher
