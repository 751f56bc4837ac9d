#include "launcher/can.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "launcher/can_filter.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/endpoint.hpp"
#include "launcher/failure.hpp"
#include "launcher/network/deciding.hpp"
#include "launcher/session_eyes.hpp"
#include "launcher/sys/landlock.hpp"
#include "launcher/view.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

Answer yes(std::string because) { return {true, std::move(because), Decision::kAllowed, {}}; }
Answer no(Decision decision, std::string because, std::string policy = {}) {
  return {false, std::move(because), decision, std::move(policy)};
}
Result<Answer> unknown(std::string why) {
  return fail({ErrorKind::kUnavailable, 0, std::move(why), {}, {}});
}

/// What access(2) is asked. Who makes something in a directory passes it too.
int wanted_of(Verb verb, mode_t mode) {
  if (verb == Verb::kRead) return R_OK;
  if (verb == Verb::kExec) return X_OK;
  return S_ISDIR(mode) ? W_OK | X_OK : W_OK;
}

/// What no mode allows.
const char* wrong_kind(Verb verb, mode_t mode) {
  if (verb != Verb::kExec) return nullptr;
  if (S_ISDIR(mode)) return "a directory";
  return S_ISREG(mode) ? nullptr : "no file that could be executed";
}

bool is_device(mode_t mode) { return S_ISCHR(mode) || S_ISBLK(mode); }

/// Read-only mounts and noexec are about these; a FIFO or a device on one can be written to.
bool is_of_the_mount(mode_t mode) { return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode); }

std::string mode_text(const struct stat& about) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "mode %04o, owner %u:%u", about.st_mode & 07777U,
                about.st_uid, about.st_gid);
  return text.data();
}

/// Something that the plan makes, which the session owns.
struct Own {
  mode_t mode = 0755;  ///< With its type.
  const char* what = "a directory of the sandbox's own";
};

/// A path of the sandbox that a verb is asked of.
struct Place {
  Verb verb;
  std::string shown;  ///< As it was asked for.
  std::string path;   ///< Without links.
};

class Question {
 public:
  Question(const Plan& plan, const policy::Policy& policy, const Host& host)
      : plan_(plan),
        policy_(policy),
        host_(host),
        view_(plan, policy),
        session_(host.uid, host.gid, host.capabilities) {}

  Result<Answer> file(Verb verb, const std::string& asked) {
    BELLJAR_CHECK(look_as_session(session_, plan_, host_));
    Result<Answer> answer = look(verb, asked);
    BELLJAR_CHECK(session_.leave());
    return answer;
  }

  Result<Answer> connect(std::string_view address, const Endpoint& to) {
    const std::string mode = view_.origin("network.mode");
    if (policy_.network.mode == policy::NetworkMode::kNone)
      return no(Decision::kNoNetwork, "there is no network but the sandbox's own loopback, " + mode,
                "network.mode");
    if (const auto refused = filter_refuses(plan_, to)) return by_filter(*refused);
    if (landlock_refuses(plan_, to.port, sys::kLandlockConnectTcp))
      return no(Decision::kPort,
                "port " + std::to_string(to.port) + " is not among those of " +
                    view_.origin("landlock.connect_tcp"),
                "landlock.connect_tcp");
    if (policy_.network.mode == policy::NetworkMode::kJoin)
      return unknown("what " + policy_.network.mode.path + " reaches is seen by trying, inside (" +
                     mode + ")");
    if (!shares_network(policy_, host_)) return by_rules(address, to, mode);
    return yes("as the host can reach " + std::string(address) + ", " + mode);
  }

 private:
  /// What the rules of a private network say now; they follow the host's addresses.
  Result<Answer> by_rules(std::string_view address, const Endpoint& to, const std::string& mode) {
    if (to.family() != AF_INET)
      return no(Decision::kNoNetwork, "a private network has IPv4 only, " + mode, "network.mode");
    const auto& inside = reinterpret_cast<const sockaddr_in&>(to.address);
    const network::Rule rule = BELLJAR_TRY(
        network::deciding_rule(policy_.network, ntohl(inside.sin_addr.s_addr), to.port));
    if (!rule.accept)
      return no(Decision::kNoNetwork,
                "a private network does not reach it: " + rule.because + ", " + mode,
                "network.mode");
    return yes("as the host can reach " + std::string(address) + ", through a private network, " +
               mode);
  }

  [[nodiscard]] Answer by_filter(const FilterRefusal& refused) const {
    const std::string by = path_of_call(policy_.syscalls, refused.call);
    return no(Decision::kFilter,
              "the filter refuses " + refused.call + "(2) for it (" + refused.verdict + "), " +
                  view_.origin(by),
              by);
  }

  Result<Answer> look(Verb verb, const std::string& asked) {
    if (const auto refused = filter_refuses(plan_, verb)) return by_filter(*refused);
    const std::optional<std::string> path = view_.follow(asked);
    if (!path) return no(Decision::kAbsent, "too many symbolic links on the way");
    const Place place{verb, *path == asked ? asked : asked + " (" + *path + ")", *path};
    if (const auto blocked = blocked_on_the_way(*path)) return *blocked;
    for (const Step* mask : view_.masks_over(*path))
      if (const auto refused = behind(*mask, place)) return *refused;
    return look_at(place);
  }

  Result<Answer> look_at(const Place& place) {
    if (const std::optional<Own> own = own_at(place.path)) return of_own(place, *own);
    const Step& mount = mount_of(place.path);
    if (std::holds_alternative<BindMount>(mount.action) || is_host_root(mount))
      return of_host(place, view_.on_host_unmasked(place.path));
    if (std::holds_alternative<MountOverlay>(mount.action)) return in_overlay(place);
    if (std::holds_alternative<MountTmpfs>(mount.action)) return in_tmpfs(place);
    if (std::holds_alternative<AttachRoot>(mount.action)) return in_own_root(place);
    return unknown(place.shown + " is the kernel's own file system (" + view_.line(mount) +
                   "): what it allows is seen by trying, inside");
  }

  // --- what the plan makes ----------------------------------------------------------------------

  static bool is_host_root(const Step& step) {
    const auto* root = std::get_if<AttachRoot>(&step.action);
    return root != nullptr && root->source;
  }

  /// The mount that `path` lies on: what the plan makes lies on one.
  [[nodiscard]] const Step& mount_of(std::string path) const {
    for (;; path = parent_of(path)) {
      const Step& step = view_.covering_unmasked(path);
      const bool made = std::holds_alternative<MakeDirectory>(step.action) ||
                        std::holds_alternative<MakeFile>(step.action) ||
                        std::holds_alternative<MakeSymlink>(step.action);
      if (!made) return step;
    }
  }

  static unsigned flags_of(const Step& mount) {
    if (const auto* bind = std::get_if<BindMount>(&mount.action)) return bind->flags;
    if (const auto* tmpfs = std::get_if<MountTmpfs>(&mount.action)) return tmpfs->flags;
    if (const auto* overlay = std::get_if<MountOverlay>(&mount.action)) return overlay->flags;
    const auto* root = std::get_if<AttachRoot>(&mount.action);
    if (root == nullptr) return 0;
    return root->source ? root->flags : root->flags | kReadOnly;  // It is sealed.
  }

  /// What the plan makes at this very path; the host has it otherwise, or nobody.
  [[nodiscard]] std::optional<Own> own_at(const std::string& path) const {
    const Step& step = view_.covering_unmasked(path);
    const auto* tmpfs = std::get_if<MountTmpfs>(&step.action);
    const auto* overlay = std::get_if<MountOverlay>(&step.action);
    const auto* made = std::get_if<MakeDirectory>(&step.action);
    const auto* file = std::get_if<MakeFile>(&step.action);
    if (tmpfs != nullptr && tmpfs->target == path)
      return Own{S_IFDIR | tmpfs->mode, "an own tmpfs"};
    if (overlay != nullptr && overlay->target == path && overlay->memory)
      return Own{S_IFDIR | overlay->memory->mode, "the top of a temporary overlay"};
    if (made != nullptr && made->path == path) return Own{S_IFDIR | made->mode};
    if (file != nullptr && file->path == path)
      return Own{S_IFREG | file->mode, "a file of the policy's"};
    const auto* root = std::get_if<AttachRoot>(&step.action);
    const bool ours = tmpfs != nullptr || made != nullptr || (root != nullptr && !root->source) ||
                      (overlay != nullptr && view_.on_host_unmasked(path).empty());
    // The way to a mount point below.
    return ours && view_.holds_a_target(path) ? std::optional(Own{S_IFDIR | 0755}) : std::nullopt;
  }

  [[nodiscard]] Result<Answer> of_own(const Place& place, const Own& own) const {
    const Step& step = view_.covering_unmasked(place.path);
    if (const char* kind = wrong_kind(place.verb, own.mode)) return no(Decision::kOtherKind, kind);
    const Step& mount = mount_of(place.path);
    if (auto refused = by_flags(place.verb, own.mode, mount)) return *std::move(refused);
    const auto wanted = static_cast<mode_t>(wanted_of(place.verb, own.mode)) << 6U;
    if ((own.mode & wanted) != wanted) return by_own_mode(place.shown, own, step);
    return yes(std::string(own.what) + ", " + view_.line(step));
  }

  [[nodiscard]] Result<Answer> by_own_mode(const std::string& shown, const Own& own,
                                           const Step& step) const {
    if (overrides_modes()) return unknown(what_overrides(shown));
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "mode %04o", own.mode & 07777U);
    return no(Decision::kOwner,
              shown + " has not the mode for it (" + text.data() + "), " + view_.line(step),
              step.because);
  }

  /// A directory of the plan's that the session may not pass. The host's own are the host's word.
  [[nodiscard]] std::optional<Result<Answer>> blocked_on_the_way(const std::string& path) const {
    for (std::string above = path; above != "/";) {
      above = parent_of(above);
      const std::optional<Own> own = own_at(above);
      if (!own || (own->mode & S_IXUSR)) continue;
      return by_own_mode(above, *own, view_.covering_unmasked(above));
    }
    return std::nullopt;
  }

  [[nodiscard]] Answer in_own_root(const Place& place) const {
    const std::string by = hidden_by(plan_, policy_, host_, place.path);
    if (place.verb == Verb::kWrite)
      return no(Decision::kHidden, "the root is read-only, " + view_.origin("filesystem.root"), by);
    if (by == "filesystem.root")
      return no(Decision::kHidden, place.shown + " is not there: nothing of the policy shows it",
                by);
    return no(Decision::kHidden, place.shown + " is not there: " + view_.origin(by), by);
  }

  [[nodiscard]] Result<Answer> in_tmpfs(const Place& place) {
    const Step& step = mount_of(place.path);
    if (place.verb == Verb::kWrite) return make(place);
    return no(Decision::kHidden,
              place.shown + " is not there at the start: an own tmpfs, " + view_.line(step),
              step.because);
  }

  /// As the layers are now. The owner's and mode's word on a file of a lower layer is the same as
  /// on a copy of it, which a write makes.
  [[nodiscard]] Result<Answer> in_overlay(const Place& place) {
    const std::string name = view_.on_host_unmasked(place.path);
    if (!name.empty()) return of_host(place, name);
    const Step& step = mount_of(place.path);
    if (place.verb == Verb::kWrite) return make(place);
    return no(Decision::kAbsent, place.shown + " is in no directory of " + view_.line(step),
              step.because);
  }

  /// Whether what is not there can be made.
  Result<Answer> make(const Place& place) {
    const Step& mount = mount_of(place.path);
    const std::string above = parent_of(place.path);
    const std::optional<mode_t> type = type_at(above);
    if (!type || !S_ISDIR(*type)) {
      const bool hidden = std::holds_alternative<MountTmpfs>(mount.action);
      return no(hidden ? Decision::kHidden : Decision::kAbsent,
                "there is no directory " + above + " at the start, " + view_.line(mount),
                mount.because);
    }
    Answer answer = BELLJAR_TRY(look_at({Verb::kWrite, above, above}));
    return answer.yes ? yes("it can be made: " + view_.line(mount)) : std::move(answer);
  }

  // --- masks ------------------------------------------------------------------------------------

  /// The type of what stands at a path below the masks; nothing where nothing does, or where the
  /// session cannot reach it.
  [[nodiscard]] std::optional<mode_t> type_at(const std::string& path) const {
    if (const std::optional<Own> own = own_at(path)) return own->mode;
    const Step& step = view_.covering_unmasked(path);
    std::string name = view_.on_host_unmasked(path);
    // The host's kernel has the same.
    if (const auto* proc = std::get_if<MountProc>(&step.action))
      name = "/proc" + path.substr(proc->target.size());
    if (const auto* dev = std::get_if<MountDev>(&step.action))
      name = "/dev" + path.substr(dev->target.size());
    struct stat about {};
    if (name.empty() || stat(name.c_str(), &about) != 0) return std::nullopt;
    return about.st_mode;
  }

  /// What a mask does to what is at its path or below it. Where nothing is there to be masked, the
  /// launch makes nothing.
  [[nodiscard]] std::optional<Answer> behind(const Step& step, const Place& place) const {
    const std::string& mask = std::get<MaskPath>(step.action).path;
    const std::optional<mode_t> type = type_at(mask);
    if (!type) return std::nullopt;
    const std::string line = view_.line(step);
    if (!S_ISDIR(*type) || place.path != mask)
      return no(Decision::kMasked, place.shown + " is hidden by " + line, step.because);
    if (place.verb == Verb::kRead) return yes("an empty directory stands there, by " + line);
    return no(Decision::kMasked, "an empty directory stands there, read-only, by " + line,
              step.because);
  }

  // --- what the host has ------------------------------------------------------------------------

  /// What the flags of a mount refuse.
  [[nodiscard]] std::optional<Answer> by_flags(Verb verb, mode_t mode, const Step& mount) const {
    const unsigned flags = flags_of(mount);
    if (is_device(mode) && (flags & kNoDev))
      return no(Decision::kNoDevice, "a device, nodev, " + view_.line(mount), mount.because);
    if (!is_of_the_mount(mode)) return std::nullopt;
    if (verb == Verb::kWrite && (flags & kReadOnly))
      return no(Decision::kReadOnly, "read-only, " + view_.line(mount), mount.because);
    if (verb == Verb::kExec && (flags & kNoExec))
      return no(Decision::kNoExec, "noexec, " + view_.line(mount), mount.because);
    return std::nullopt;
  }

  /// What the host's own mount refuses, which no policy can lift.
  [[nodiscard]] static std::optional<Answer> by_host_mount(Verb verb, mode_t mode,
                                                           const std::string& name) {
    struct statvfs system {};
    if (statvfs(name.c_str(), &system) != 0) return std::nullopt;
    if (is_device(mode) && (system.f_flag & ST_NODEV))
      return no(Decision::kNoDevice, name + " is on a mount of the host's that is nodev");
    if (is_of_the_mount(mode) && verb == Verb::kExec && (system.f_flag & ST_NOEXEC))
      return no(Decision::kNoExec, name + " is on a mount of the host's that is noexec");
    return std::nullopt;
  }

  Result<Answer> of_host(const Place& place, const std::string& name) {
    const Step& mount = mount_of(place.path);
    const auto* bind = std::get_if<BindMount>(&mount.action);
    if (bind == nullptr || !bind->mapped || !host_.workspace_owner)
      return judge(place, name, plan_.uid);
    if (!host_.privileged())
      return unknown("what the owner of " + name + " may do is seen by trying, inside");
    // Only the owner is mapped: no group of the session's is anybody there.
    const SessionIds owner = *host_.workspace_owner;
    BELLJAR_CHECK(session_.leave());
    BELLJAR_CHECK(session_.look_as(owner.uid, owner.gid, {}));
    Result<Answer> answer = judge(place, name, owner.uid);
    BELLJAR_CHECK(session_.leave());
    BELLJAR_CHECK(look_as_session(session_, plan_, host_));
    return answer;
  }

  Result<Answer> judge(const Place& place, const std::string& name, uid_t uid) {
    const Step& mount = mount_of(place.path);
    struct stat about {};
    if (stat(name.c_str(), &about) != 0) return missing(place, name, errno);
    if (const char* kind = wrong_kind(place.verb, about.st_mode))
      return no(Decision::kOtherKind, place.shown + " is " + kind);
    if (auto refused = by_flags(place.verb, about.st_mode, mount)) return *std::move(refused);
    if (auto refused = by_host_mount(place.verb, about.st_mode, name))
      return of_host_mount(place, *std::move(refused));
    const int wanted = wanted_of(place.verb, about.st_mode);
    const int error = faccessat(AT_FDCWD, name.c_str(), wanted, AT_EACCESS) == 0 ? 0 : errno;
    if (error == EROFS)
      return of_host_mount(
          place, no(Decision::kReadOnly, name + " is on a mount of the host's that is read-only"));
    if (error != 0) return by_owner(name, about, uid, mount);
    if (S_ISSOCK(about.st_mode))
      return no(Decision::kOtherKind,
                place.shown + " is a socket, which cannot be opened; it can be connected to, " +
                    view_.line(mount));
    return yes(view_.line(mount) + ", and " + name + " allows it to uid " + std::to_string(uid));
  }

  /// An overlay has flags of its own, and writes to a copy: owner and mode are still to be asked.
  [[nodiscard]] Result<Answer> of_host_mount(const Place& place, Answer refused) const {
    const Step& mount = mount_of(place.path);
    if (!std::holds_alternative<MountOverlay>(mount.action)) return refused;
    return unknown(refused.because + ", below an overlay (" + view_.line(mount) +
                   "): what that allows is seen by trying, inside");
  }

  Result<Answer> missing(const Place& place, const std::string& name, int error) {
    const Step& mount = mount_of(place.path);
    if (error == EACCES && overrides_modes()) return unknown(what_overrides(name));
    if (error == EACCES)
      return no(Decision::kOwner, name + " of the host is out of reach", mount.because);
    const auto* bind = std::get_if<BindMount>(&mount.action);
    const bool is_source = bind != nullptr && bind->target == place.path;
    if (error == ENOENT && place.verb == Verb::kWrite && !is_source) return make(place);
    return no(Decision::kAbsent,
              place.shown + " does not exist: there is no " + name + " on the host", mount.because);
  }

  [[nodiscard]] Result<Answer> by_owner(const std::string& name, const struct stat& about,
                                        uid_t uid, const Step& mount) const {
    if (overrides_modes() && is_mapped(about)) return unknown(what_overrides(name));
    return no(Decision::kOwner,
              name + " of the host does not allow it to uid " + std::to_string(uid) + " (" +
                  mode_text(about) + "); the policy does, " + view_.line(mount),
              mount.because);
  }

  // --- capabilities -----------------------------------------------------------------------------

  /// Of what belongs to ids that the sandbox's user namespace maps (man 7 capabilities).
  [[nodiscard]] bool overrides_modes() const {
    return keeps(policy_, "CAP_DAC_OVERRIDE") || keeps(policy_, "CAP_DAC_READ_SEARCH");
  }

  [[nodiscard]] std::string what_overrides(const std::string& name) const {
    return "what the capabilities that the command keeps (" + view_.origin("capabilities") +
           ") change for " + name + " is seen by trying, inside";
  }

  [[nodiscard]] bool is_mapped(const struct stat& about) const {
    const auto has = [](const std::vector<IdLine>& lines, std::uint32_t id) {
      return std::any_of(lines.begin(), lines.end(),
                         [id](const IdLine& line) { return id - line.outside < line.count; });
    };
    for (const Step& step : plan_.steps)
      if (const auto* map = std::get_if<MapIds>(&step.action))
        return has(map->uids, about.st_uid) && has(map->gids, about.st_gid);
    return true;
  }

  const Plan& plan_;
  const policy::Policy& policy_;
  const Host& host_;
  const View view_;
  sys::SessionCredentials session_;
};

Result<Answer> unreadable(std::string_view question) {
  return fail(
      {ErrorKind::kInvalid,
       0,
       "\"" + std::string(question) +
           "\" is no question; ask read:/PATH, write:/PATH, exec:/PATH or connect:ADDR:PORT",
       {},
       {}});
}

}  // namespace

/// By the plan: what the policy only preferred may not be in it.
bool landlock_refuses(const Plan& plan, std::uint16_t port, std::uint64_t right) {
  for (const Step& step : plan.steps) {
    const auto* domain = std::get_if<TakeLandlock>(&step.action);
    if (domain == nullptr || (domain->tcp & right) == 0) continue;
    return std::none_of(domain->ports.begin(), domain->ports.end(), [&](const LandlockPort& rule) {
      return rule.port == port && (rule.access & right) != 0;
    });
  }
  return false;
}

bool host_allows(Verb verb, const std::string& name) {
  struct stat about {};
  if (stat(name.c_str(), &about) != 0 || wrong_kind(verb, about.st_mode) != nullptr) return false;
  const int wanted = wanted_of(verb, about.st_mode);
  return faccessat(AT_FDCWD, name.c_str(), wanted, AT_EACCESS) == 0;
}

Result<Answer> can(Verb verb, const std::string& path, const Plan& plan,
                   const policy::Policy& policy, const Host& host) {
  return Question(plan, policy, host).file(verb, path);
}

Result<Answer> can(std::string_view question, const Plan& plan, const policy::Policy& policy,
                   const Host& host) {
  const std::size_t colon = question.find(':');
  if (colon == std::string_view::npos) return unreadable(question);
  const std::string_view verb = question.substr(0, colon), object = question.substr(colon + 1);
  Question asked(plan, policy, host);
  if (verb == "connect") {
    const Endpoint to = BELLJAR_TRY(parse_endpoint(object));
    return asked.connect(object, to);
  }
  if (!object.starts_with('/')) return unreadable(question);
  if (verb == "read") return asked.file(Verb::kRead, std::string(object));
  if (verb == "write") return asked.file(Verb::kWrite, std::string(object));
  if (verb == "exec") return asked.file(Verb::kExec, std::string(object));
  return unreadable(question);
}

}  // namespace belljar::launcher
