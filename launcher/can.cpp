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
#include "launcher/sys/landlock.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

enum class Verb { kRead, kWrite, kExec };

Answer yes(std::string because) { return {true, std::move(because)}; }
Answer no(std::string because) { return {false, std::move(because)}; }

/// Where a step puts something; empty for steps that put nothing anywhere.
std::string target_of(const StepAction& action) {
  return std::visit(
      [](const auto& step) -> std::string {
        if constexpr (requires { step.target; })
          return step.target;
        else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(step)>, AttachRoot>)
          return "/";
        else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(step)>, MakeDirectory> ||
                           std::is_same_v<std::remove_cvref_t<decltype(step)>, MakeFile> ||
                           std::is_same_v<std::remove_cvref_t<decltype(step)>, MakeSymlink> ||
                           std::is_same_v<std::remove_cvref_t<decltype(step)>, MaskPath>)
          return step.path;
        else
          return {};
      },
      action);
}

class Question {
 public:
  Question(const Plan& plan, const policy::Policy& policy, const Host& host)
      : plan_(plan), policy_(policy), host_(host) {}

  Result<Answer> file(Verb verb, const std::string& asked) {
    const std::optional<std::string> path = follow(asked);
    if (!path) return no("too many symbolic links on the way");
    const Step& step = covering(*path);
    const std::string shown = *path == asked ? asked : asked + " (" + *path + ")";
    if (std::holds_alternative<MaskPath>(step.action))
      return no(shown + " is hidden by " + line(step));
    if (const auto* root = std::get_if<AttachRoot>(&step.action))
      return root->source ? bound(verb, shown, *path, *root->source, "/", root->flags, step)
                          : in_own_root(verb, shown, *path);
    if (const auto* bind = std::get_if<BindMount>(&step.action))
      return bound(verb, shown, *path, bind->source, bind->target, bind->flags, step);
    if (const auto* tmpfs = std::get_if<MountTmpfs>(&step.action))
      return in_tmpfs(verb, shown, *path, *tmpfs, step);
    if (const auto* file = std::get_if<MakeFile>(&step.action))
      return made(verb, shown, *file, step);
    if (std::holds_alternative<MakeDirectory>(step.action)) return in_own_root(verb, shown, *path);
    return fail({ErrorKind::kUnavailable,
                 0,
                 shown + " is the kernel's own file system (" + line(step) +
                     "): what it allows is seen by trying, inside",
                 {},
                 {}});
  }

  Answer connect(const std::string& address, std::uint16_t port) {
    const std::string mode = origin("network.mode");
    if (policy_.network.mode == policy::NetworkMode::kNone)
      return no("there is no network but the sandbox's own loopback, " + mode);
    if (policy_.syscalls.base == policy::SyscallBase::kStrict1 &&
        !policy_.syscalls.rules.contains("socket"))
      return no("the filter allows local sockets only, " + origin("syscalls.base"));
    if (landlock_refuses(port))
      return no("port " + std::to_string(port) + " is not among those of " +
                origin("landlock.connect_tcp"));
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

  [[nodiscard]] std::string origin(const std::string& path) const {
    const std::string where = policy_.where(path);
    return (where.empty() ? "by default" : where) + " " + path;
  }
  [[nodiscard]] std::string line(const Step& step) const {
    return step.because.empty() ? "a default of belljar" : origin(step.because);
  }

  /// The step that decides what stands at `path`: the one with the longest target, the last of
  /// several.
  [[nodiscard]] const Step& covering(const std::string& path) const {
    const Step* best = nullptr;
    std::size_t length = 0;
    for (const Step& step : plan_.steps) {
      const std::string target = target_of(step.action);
      if (target.empty() || target.size() < length || !is_within(path, target)) continue;
      best = &step;
      length = target.size();
    }
    return *best;  // AttachRoot is in every plan.
  }

  static std::string on_host(const std::string& path, const std::string& source,
                             const std::string& target) {
    if (path == target) return source;
    return join(source, path.substr(target == "/" ? 1 : target.size() + 1));
  }

  /// What the link at `path` says, of the plan or of the host.
  [[nodiscard]] std::optional<std::string> link_at(const std::string& path) const {
    const Step& step = covering(path);
    if (const auto* link = std::get_if<MakeSymlink>(&step.action)) return link->text;
    std::string source, target;
    if (const auto* bind = std::get_if<BindMount>(&step.action))
      source = bind->source, target = bind->target;
    if (const auto* root = std::get_if<AttachRoot>(&step.action); root != nullptr && root->source)
      source = *root->source, target = "/";
    if (source.empty() || path == target) return std::nullopt;
    std::array<char, PATH_MAX> text{};
    const ssize_t got =
        readlink(on_host(path, source, target).c_str(), text.data(), text.size() - 1);
    if (got <= 0) return std::nullopt;
    return std::string(text.data(), static_cast<std::size_t>(got));
  }

  /// `path` without links, as the sandbox's root would have them followed.
  [[nodiscard]] std::optional<std::string> follow(const std::string& path) const {
    std::string done = "/", rest = path;
    for (int links = 0; links <= 40;) {
      const std::size_t from = rest.find_first_not_of('/');
      if (from == std::string::npos) return done;
      const std::size_t end = std::min(rest.find('/', from), rest.size());
      const std::string name = rest.substr(from, end - from);
      rest.erase(0, end);
      if (name == ".") continue;
      if (name == "..") {
        done = parent_of(done);
        continue;
      }
      const std::string next = join(done, name);
      const std::optional<std::string> text = link_at(next);
      if (!text) {
        done = next;
        continue;
      }
      ++links;
      if (text->starts_with('/')) done = "/";
      rest = *text + "/" + rest;
    }
    return std::nullopt;
  }

  [[nodiscard]] Result<Answer> bound(Verb verb, const std::string& shown, const std::string& path,
                                     const std::string& source, const std::string& target,
                                     unsigned flags, const Step& step) const {
    const std::string name = on_host(path, source, target);
    if (verb == Verb::kWrite && (flags & kReadOnly)) return no("read-only, " + line(step));
    if (verb == Verb::kExec && (flags & kNoExec)) return no("noexec, " + line(step));
    return by_owner_and_mode(verb, shown, name, step);
  }

  [[nodiscard]] Result<Answer> by_owner_and_mode(Verb verb, const std::string& shown,
                                                 const std::string& name, const Step& step) const {
    const SessionIds ids{plan_.uid, plan_.gid};
    const int wanted = verb == Verb::kRead ? R_OK : verb == Verb::kWrite ? W_OK : X_OK;
    if (BELLJAR_TRY(access_as(ids, host_, name, wanted)) != Access::kNone)
      return yes(line(step) + ", and " + name + " allows it to uid " + std::to_string(plan_.uid));
    struct stat about {};
    if (stat(name.c_str(), &about) != 0) {
      if (errno != ENOENT) return no(name + " of the host is out of reach");
      if (verb == Verb::kWrite &&
          BELLJAR_TRY(access_as(ids, host_, parent_of(name), W_OK | X_OK)) != Access::kNone)
        return yes("it can be made: " + line(step));
      return no(shown + " does not exist: there is no " + name + " on the host");
    }
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "mode %04o, owner %u:%u", about.st_mode & 07777U,
                  about.st_uid, about.st_gid);
    return no(name + " of the host does not allow it to uid " + std::to_string(plan_.uid) + " (" +
              text.data() + "); the policy does, " + line(step));
  }

  [[nodiscard]] Answer in_own_root(Verb verb, const std::string& shown,
                                   const std::string& path) const {
    if (verb == Verb::kWrite) return no("the root is read-only, " + origin("filesystem.root"));
    for (const Step& step : plan_.steps) {
      const std::string target = target_of(step.action);
      if (!target.empty() && is_within(target, path))
        return verb == Verb::kRead ? yes("a directory of the sandbox's own") : no("a directory");
    }
    for (const auto& [name, why] : policy_.filesystem.hide)
      if (is_within(path, name))
        return no(shown + " is not there: " + origin(policy::member_path("filesystem.hide", name)));
    return no(shown + " is not there: nothing of the policy shows it");
  }

  [[nodiscard]] Answer in_tmpfs(Verb verb, const std::string& shown, const std::string& path,
                                const MountTmpfs& tmpfs, const Step& step) const {
    if (verb == Verb::kWrite && (tmpfs.flags & kReadOnly)) return no("read-only, " + line(step));
    if (verb == Verb::kWrite) return yes("an own tmpfs, " + line(step));
    if (path == tmpfs.target) return yes("an own tmpfs, " + line(step));
    return no(shown + " is not there at the start: an own tmpfs, " + line(step));
  }

  [[nodiscard]] Answer made(Verb verb, const std::string& shown, const MakeFile& file,
                            const Step& step) const {
    const mode_t bit = verb == Verb::kRead ? 0400 : verb == Verb::kWrite ? 0200 : 0100;
    if (verb == Verb::kWrite)
      return no("a file of the policy's on a read-only root, " + line(step));
    return file.mode & bit ? yes("a file of the policy's, " + line(step))
                           : no(shown + " has not the mode for it, " + line(step));
  }

  const Plan& plan_;
  const policy::Policy& policy_;
  const Host& host_;
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
