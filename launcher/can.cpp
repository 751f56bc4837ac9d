#include "launcher/can.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <optional>

#include "launcher/controls/paths.hpp"
#include "launcher/failure.hpp"
#include "launcher/sys/landlock.hpp"
#include "launcher/view.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

Answer yes(std::string because) { return {true, std::move(because), Decision::kAllowed, {}}; }
Answer no(Decision decision, std::string because, std::string policy = {}) {
  return {false, std::move(because), decision, std::move(policy)};
}

class Question {
 public:
  Question(const Plan& plan, const policy::Policy& policy, const Host& host)
      : plan_(plan), policy_(policy), host_(host), view_(plan, policy) {}

  Result<Answer> file(Verb verb, const std::string& asked) {
    const std::optional<std::string> path = view_.follow(asked);
    if (!path) return no(Decision::kAbsent, "too many symbolic links on the way");
    const Step& step = view_.covering(*path);
    const std::string shown = *path == asked ? asked : asked + " (" + *path + ")";
    if (std::holds_alternative<MaskPath>(step.action))
      return no(Decision::kMasked, shown + " is hidden by " + view_.line(step), step.because);
    if (const auto* root = std::get_if<AttachRoot>(&step.action))
      return root->source ? bound(verb, shown, *path, root->flags, step)
                          : in_own_root(verb, shown, *path);
    if (const auto* bind = std::get_if<BindMount>(&step.action))
      return bound(verb, shown, *path, bind->flags, step);
    if (const auto* overlay = std::get_if<MountOverlay>(&step.action))
      return in_overlay(verb, shown, *path, *overlay, step);
    if (const auto* tmpfs = std::get_if<MountTmpfs>(&step.action))
      return in_tmpfs(verb, shown, *path, *tmpfs, step);
    if (const auto* file = std::get_if<MakeFile>(&step.action))
      return made(verb, shown, *file, step);
    if (std::holds_alternative<MakeDirectory>(step.action)) return in_own_root(verb, shown, *path);
    return fail({ErrorKind::kUnavailable,
                 0,
                 shown + " is the kernel's own file system (" + view_.line(step) +
                     "): what it allows is seen by trying, inside",
                 {},
                 {}});
  }

  Result<Answer> connect(const std::string& address, std::uint16_t port) {
    const std::string mode = view_.origin("network.mode");
    if (policy_.network.mode == policy::NetworkMode::kNone)
      return no(Decision::kNoNetwork, "there is no network but the sandbox's own loopback, " + mode,
                "network.mode");
    if (policy_.syscalls.base == policy::SyscallBase::kStrict1 &&
        !policy_.syscalls.rules.contains("socket"))
      return no(Decision::kFilter,
                "the filter allows local sockets only, " + view_.origin("syscalls.base"),
                "syscalls.base");
    if (landlock_refuses(port))
      return no(Decision::kPort,
                "port " + std::to_string(port) + " is not among those of " +
                    view_.origin("landlock.connect_tcp"),
                "landlock.connect_tcp");
    if (policy_.network.mode == policy::NetworkMode::kJoin)
      return fail({ErrorKind::kUnavailable,
                   0,
                   "what " + policy_.network.mode.path + " reaches is seen by trying, inside (" +
                       mode + ")",
                   {},
                   {}});
    return yes("as the host can reach " + address + ", " + mode);
  }

 private:
  /// By the plan: what the policy only preferred may not be in it.
  [[nodiscard]] bool landlock_refuses(std::uint16_t port) const {
    for (const Step& step : plan_.steps) {
      const auto* domain = std::get_if<TakeLandlock>(&step.action);
      if (domain == nullptr || (domain->tcp & sys::kLandlockConnectTcp) == 0) continue;
      return std::none_of(
          domain->ports.begin(), domain->ports.end(), [&](const LandlockPort& rule) {
            return rule.port == port && (rule.access & sys::kLandlockConnectTcp) != 0;
          });
    }
    return false;
  }

  /// What the flags of a mount refuse.
  [[nodiscard]] std::optional<Answer> by_flags(Verb verb, unsigned flags, const Step& step) const {
    if (verb == Verb::kWrite && (flags & kReadOnly))
      return no(Decision::kReadOnly, "read-only, " + view_.line(step), step.because);
    if (verb == Verb::kExec && (flags & kNoExec))
      return no(Decision::kNoExec, "noexec, " + view_.line(step), step.because);
    return std::nullopt;
  }

  [[nodiscard]] Result<Answer> bound(Verb verb, const std::string& shown, const std::string& path,
                                     unsigned flags, const Step& step) const {
    if (const std::optional<Answer> refused = by_flags(verb, flags, step)) return *refused;
    return by_owner_and_mode(verb, shown, view_.on_host(path), step);
  }

  /// As the layers are now. The owner's and mode's word on a file of a lower layer is the same as
  /// on a copy of it, which a write makes.
  [[nodiscard]] Result<Answer> in_overlay(Verb verb, const std::string& shown,
                                          const std::string& path, const MountOverlay& overlay,
                                          const Step& step) const {
    if (const std::optional<Answer> refused = by_flags(verb, overlay.flags, step)) return *refused;
    const std::string line = view_.line(step);
    if (path == overlay.target && overlay.memory)
      return yes("the top of a temporary overlay, " + line);
    const std::string name = view_.on_host(path);
    if (!name.empty()) return by_owner_and_mode(verb, shown, name, step);
    if (verb != Verb::kWrite)
      return no(Decision::kAbsent, shown + " is in no directory of " + line, step.because);
    return in_overlay(verb, shown, parent_of(path), overlay, step);
  }

  [[nodiscard]] Result<Answer> by_owner_and_mode(Verb verb, const std::string& shown,
                                                 const std::string& name, const Step& step) const {
    SessionIds ids{plan_.uid, plan_.gid};
    if (const auto* bind = std::get_if<BindMount>(&step.action); bind != nullptr && bind->mapped)
      ids = host_.workspace_owner.value_or(ids);
    const int wanted = verb == Verb::kRead ? R_OK : verb == Verb::kWrite ? W_OK : X_OK;
    if (BELLJAR_TRY(access_as(ids, host_, name, wanted)) != Access::kNone)
      return yes(view_.line(step) + ", and " + name + " allows it to uid " +
                 std::to_string(ids.uid));
    struct stat about {};
    if (stat(name.c_str(), &about) != 0) {
      if (errno != ENOENT)
        return no(Decision::kOwner, name + " of the host is out of reach", step.because);
      if (verb == Verb::kWrite &&
          BELLJAR_TRY(access_as(ids, host_, parent_of(name), W_OK | X_OK)) != Access::kNone)
        return yes("it can be made: " + view_.line(step));
      return no(Decision::kAbsent, shown + " does not exist: there is no " + name + " on the host",
                step.because);
    }
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "mode %04o, owner %u:%u", about.st_mode & 07777U,
                  about.st_uid, about.st_gid);
    return no(Decision::kOwner,
              name + " of the host does not allow it to uid " + std::to_string(ids.uid) + " (" +
                  text.data() + "); the policy does, " + view_.line(step),
              step.because);
  }

  [[nodiscard]] Answer in_own_root(Verb verb, const std::string& shown,
                                   const std::string& path) const {
    const bool is_directory = view_.holds_a_target(path);
    if (verb == Verb::kRead && is_directory) return yes("a directory of the sandbox's own");
    const std::string by = hidden_by(plan_, policy_, host_, path);
    if (verb == Verb::kWrite)
      return no(is_directory ? Decision::kReadOnly : Decision::kHidden,
                "the root is read-only, " + view_.origin("filesystem.root"),
                is_directory ? "filesystem.root" : by);
    if (is_directory) return no(Decision::kAbsent, "a directory");
    if (by == "filesystem.root")
      return no(Decision::kHidden, shown + " is not there: nothing of the policy shows it", by);
    return no(Decision::kHidden, shown + " is not there: " + view_.origin(by), by);
  }

  [[nodiscard]] Answer in_tmpfs(Verb verb, const std::string& shown, const std::string& path,
                                const MountTmpfs& tmpfs, const Step& step) const {
    const std::string line = view_.line(step);
    if (verb == Verb::kWrite && (tmpfs.flags & kReadOnly))
      return no(Decision::kReadOnly, "read-only, " + line, step.because);
    if (verb == Verb::kWrite || path == tmpfs.target) return yes("an own tmpfs, " + line);
    return no(Decision::kHidden, shown + " is not there at the start: an own tmpfs, " + line,
              step.because);
  }

  [[nodiscard]] Answer made(Verb verb, const std::string& shown, const MakeFile& file,
                            const Step& step) const {
    const std::string line = view_.line(step);
    const mode_t bit = verb == Verb::kRead ? 0400 : verb == Verb::kWrite ? 0200 : 0100;
    if (verb == Verb::kWrite)
      return no(Decision::kReadOnly, "a file of the policy's on a read-only root, " + line,
                step.because);
    return file.mode & bit
               ? yes("a file of the policy's, " + line)
               : no(Decision::kOwner, shown + " has not the mode for it, " + line, step.because);
  }

  const Plan& plan_;
  const policy::Policy& policy_;
  const Host& host_;
  const View view_;
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
    const std::size_t last = object.rfind(':');
    std::uint16_t port = 0;
    if (last == std::string_view::npos || last == 0) return unreadable(question);
    const char* end = object.data() + object.size();
    const auto [stop, error] = std::from_chars(object.data() + last + 1, end, port);
    if (error != std::errc() || stop != end || port == 0) return unreadable(question);
    return asked.connect(std::string(object), port);
  }
  if (!object.starts_with('/')) return unreadable(question);
  if (verb == "read") return asked.file(Verb::kRead, std::string(object));
  if (verb == "write") return asked.file(Verb::kWrite, std::string(object));
  if (verb == "exec") return asked.file(Verb::kExec, std::string(object));
  return unreadable(question);
}

}  // namespace belljar::launcher
