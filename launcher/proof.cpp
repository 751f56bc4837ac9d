#include "launcher/proof.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "launcher/can.hpp"
#include "launcher/can_filter.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/endpoint.hpp"
#include "launcher/sys/landlock.hpp"
#include "launcher/view.hpp"

namespace belljar::launcher {
namespace {

std::string operand_of(const std::string& attempt) { return attempt.substr(attempt.find(' ') + 1); }

/// A path that an attempt names, and what the host has for it.
class Target {
 public:
  Target(const std::string& path, const Plan& plan, const policy::Policy& policy)
      : path_(path), view_(plan, policy) {}

  /// The type and mode of what stands at `path` without the policy, there or on the host; an own
  /// thing of the sandbox's has none. What is out of our reach counts as being there.
  [[nodiscard]] std::optional<mode_t> mode(const std::string& path) const {
    std::optional<mode_t> found = look(path);
    if (found) return found;
    const std::optional<std::string> inside = view_.follow(path);
    return inside ? look(view_.on_host_unmasked(*inside)) : std::nullopt;
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// What has to be there for the verb to be worth a refusal.
  [[nodiscard]] bool is_anywhere(const std::string& verb) const {
    if (mode(path_)) return true;
    if (verb != "write") return false;
    const std::optional<mode_t> above = mode(parent_of(path_));
    return above && (S_ISDIR(*above) || *above == 0);
  }

 private:
  static std::optional<mode_t> look(const std::string& name) {
    struct stat about {};
    if (!name.empty() && stat(name.c_str(), &about) == 0) return about.st_mode;
    return !name.empty() && errno == EACCES ? std::optional<mode_t>(0) : std::nullopt;
  }

  const std::string path_;
  const View view_;
};

std::string why_path(const std::string& verb, const Target& target, const std::string& verdict) {
  if (verdict == "ENOENT" || verdict == "ENOTDIR") {
    if (target.is_anywhere(verb)) return {};
    return "neither the host nor the sandbox has " +
           (verb == "write" ? parent_of(target.path()) + " to write in" : target.path());
  }
  if (verdict != "EACCES" && verdict != "EPERM" && verdict != "EROFS")
    return "it is no refusal of the sandbox's";
  const std::optional<mode_t> mode = target.mode(target.path());
  if (verb != "exec" || !mode || *mode == 0) return {};
  if (S_ISDIR(*mode)) return target.path() + " is a directory, which nobody can execute";
  if (!S_ISREG(*mode)) return target.path() + " is no file, and nobody can execute it";
  return (*mode & 0111) == 0 ? target.path() + " has no execute permission for anybody" : "";
}

/// Neither the host's network nor a joined one is seen.
bool makes_network(const Plan& plan) {
  return std::ranges::any_of(plan.steps, [](const Step& step) {
    const auto* create = std::get_if<CreateNamespaces>(&step.action);
    return create != nullptr && (create->flags & CLONE_NEWNET) != 0;
  });
}

std::string why_connection(const Endpoint& to, const std::string& verdict, const Plan& plan) {
  // What fails for want of a way out is the answer of a network without one.
  const bool no_way = verdict == "ENETUNREACH" || verdict == "EHOSTUNREACH" ||
                      verdict == "EADDRNOTAVAIL" || verdict == "EACCES" || verdict == "EPERM";
  if (no_way && makes_network(plan)) return {};
  if (verdict == "EACCES" && landlock_refuses(plan, to.port, sys::kLandlockConnectTcp)) return {};
  return "no line of the policy refuses it; it is the host that cannot, or does not let it, "
         "connect";
}

}  // namespace

std::string fault_of_attempt(const std::string& attempt) {
  const std::string operand = operand_of(attempt);
  if (!attempt.starts_with("connect "))
    return operand.starts_with('/') ? "" : "\"" + operand + "\" is no absolute path";
  const Result<Endpoint> to = parse_endpoint(operand);
  return to ? std::string() : to.error().what;
}

std::string why_no_proof(const std::string& attempt, const std::string& verdict,
                         const TrialPolicy& trial) {
  const Result<Plan> plan = trial.plan();
  if (!plan) return plan.error().what;
  const std::string verb = attempt.substr(0, attempt.find(' ')), operand = operand_of(attempt);
  const policy::Policy& policy = trial.policy();
  if (verb == "connect") {
    const Endpoint to = *parse_endpoint(operand);
    const auto refused = filter_refuses(*plan, to);
    return refused && refused->verdict == verdict ? "" : why_connection(to, verdict, *plan);
  }
  const Verb what = verb == "read" ? Verb::kRead : verb == "write" ? Verb::kWrite : Verb::kExec;
  const auto refused = filter_refuses(*plan, what);
  if (refused && refused->verdict == verdict) return {};
  return why_path(verb, Target(operand, *plan, policy), verdict);
}

}  // namespace belljar::launcher
