#include "launcher/failure.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/controls/control.hpp"
#include "launcher/controls/paths.hpp"

namespace belljar::launcher {
namespace {

std::string subject_of(const Message& message) {
  return {message.subject, strnlen(message.subject, sizeof message.subject)};
}

/// Some numbers have no description.
std::string errno_text(int number) {
  const char* known = strerrordesc_np(number);
  return known != nullptr ? known : errno_name(number);
}

}  // namespace

std::string origin_text(const policy::Policy& policy, const std::string& because) {
  if (because.empty()) return {};
  const std::string where = policy.where(because);
  if (where.empty()) return because + " (a default)";
  // An option of the command line already says what it sets.
  return where.starts_with("-") ? where : where + " " + because;
}

namespace {

const std::string& target_of(const Step& step) {
  static const std::string kNone;
  if (const auto* bind = std::get_if<BindMount>(&step.action)) return bind->target;
  if (const auto* tmpfs = std::get_if<MountTmpfs>(&step.action)) return tmpfs->target;
  if (const auto* overlay = std::get_if<MountOverlay>(&step.action)) return overlay->target;
  if (const auto* queues = std::get_if<MountMqueue>(&step.action)) return queues->target;
  if (const auto* proc = std::get_if<MountProc>(&step.action)) return proc->target;
  if (const auto* dev = std::get_if<MountDev>(&step.action)) return dev->target;
  if (const auto* mask = std::get_if<MaskPath>(&step.action)) return mask->path;
  return kNone;
}

/// The policy path of the mount that `path` lies on inside; empty for the root itself.
std::string covered_by(const Plan& plan, const std::string& path) {
  const Step* nearest = nullptr;
  for (const Step& step : plan.steps) {
    const std::string& target = target_of(step);
    if (target.empty() || !is_within(path, target)) continue;
    if (nearest == nullptr || target.size() >= target_of(*nearest).size()) nearest = &step;
  }
  return nearest == nullptr ? std::string() : nearest->because;
}

}  // namespace

std::string hidden_by(const Plan& plan, const policy::Policy& policy, const Host& host,
                      const std::string& path) {
  if (std::string because = covered_by(plan, path); !because.empty()) return because;
  const std::string top(top_level_of(path));
  for (const auto& [name, why] : policy.filesystem.hide) {
    const bool computed =
        (name == policy::kHideWorkspace && is_within(workspace_path(policy, host), top)) ||
        (name == policy::kHideHome && is_within(host.home, top));
    if (name == top || computed) return policy::member_path("filesystem.hide", name);
  }
  return "filesystem.root";
}

namespace {

/// Where the host has the command: what the sandbox would try, then the caller's own PATH.
std::string find_on_host(const Plan& plan, const Host& host) {
  std::vector<std::string> paths;
  if (const auto* exec = std::get_if<Exec>(&plan.steps.back().action)) paths = exec->candidates;
  const std::string& program = plan.argv.front();
  if (program.find('/') != std::string::npos && !program.starts_with("/"))
    paths = {join(plan.directory, program)};
  if (auto found = host.environment.find("PATH");
      found != host.environment.end() && program.find('/') == std::string::npos) {
    std::string_view rest = found->second;
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find(':'));
      if (entry.starts_with("/")) paths.push_back(join(entry, program));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    }
  }
  for (const std::string& path : paths)
    if (access(path.c_str(), X_OK) == 0) return path;
  return {};
}

struct Explanation {
  std::string reason;
  std::string because;  ///< Empty: the step's own.
  std::string remedy;
  bool hidden = false;  ///< `because` keeps it out of the sandbox.
};

Explanation explain_not_found(const Plan& plan, const policy::Policy& policy, const Host& host) {
  const std::string& program = plan.argv.front();
  const std::string path = find_on_host(plan, host);
  if (path.empty())
    return {program + " exists neither in the sandbox nor on the host",
            {},
            "check the name; the sandbox's PATH is in `belljar explain`"};
  const SessionIds ids{plan.uid, plan.gid};
  const Result<Access> access = access_as(ids, host, path);
  if (access && *access == Access::kNone)
    return {program + " exists on the host" + (path == program ? "" : " as " + path) +
                ", but uid " + std::to_string(plan.uid) +
                ", which the command runs as, cannot reach it",
            "identity.uid",
            "run it as a uid that can (--set identity.uid=N), or install it where everybody can "
            "read it"};
  const std::string directory = parent_of(path);
  const std::string as = path == program ? "" : " as " + path;
  return {program + " exists on the host" + as + ", but not in the sandbox",
          hidden_by(plan, policy, host, path),
          "show it with -v " + directory + ":" + directory + ":ro", true};
}

/// Something that a program needs is not in the sandbox: `what` says so, `path` is it.
Explanation explain_missing(std::string what, const std::string& path, const char* otherwise,
                            const Plan& plan, const policy::Policy& policy, const Host& host) {
  what += ", which is not in the sandbox";
  if (access(path.c_str(), F_OK) != 0) return {std::move(what), {}, otherwise};
  const std::string directory = parent_of(path);
  return {std::move(what), hidden_by(plan, policy, host, path),
          "show it with -v " + directory + ":" + directory + ":ro", true};
}

Explanation explain_missing_loader(const std::string& loader, const Plan& plan,
                                   const policy::Policy& policy, const Host& host) {
  Explanation missing =
      explain_missing("the program asks for the dynamic loader " + loader, loader,
                      "install it, or link the program statically", plan, policy, host);
  if (missing.hidden)
    missing.remedy =
        "show the host's libraries: -v /usr/lib:/usr/lib:ro -v /lib:/lib:ro -v "
        "/lib64:/lib64:ro, or filesystem.root \"host\"";
  return missing;
}

Explanation explain_joined_ids(Detail detail, const std::string& subject) {
  if (detail == Detail::kForeignIds)
    return {"the user namespace calls the session " + subject +
                ", which is not what identity.inside_uid and inside_gid say",
            {},
            "set them to what it says"};
  return {"the user namespace does not map the session's " + subject +
              ", so that nothing could be mounted or made in it",
          {},
          "join one whose maps have the session's ids, or run the session as one that it maps: "
          "--set identity.uid=N, --set identity.gid=N"};
}

Explanation explain_detail(const Plan& plan, const policy::Policy& policy, const Host& host,
                           const Message& message) {
  const std::string subject = subject_of(message);
  switch (message.detail) {
    case Detail::kNotFound:
      return explain_not_found(plan, policy, host);
    case Detail::kInterpreterMissing:
      return explain_missing("the script asks for the interpreter " + subject, subject,
                             "install it, or correct the script's first line", plan, policy, host);
    case Detail::kLoaderMissing:
      return explain_missing_loader(subject, plan, policy, host);
    case Detail::kNoexecMount:
      return {subject + " lies on a mount where nothing may be executed (noexec)",
              covered_by(plan, subject),
              "set \"noexec\": false on that mount, or put the program elsewhere"};
    case Detail::kNotExecutable:
      return {subject + " has no execute permission",
              {},
              "chmod +x it, or run its interpreter with it"};
    case Detail::kNoFormat:
      return {subject +
                  " is no program that this machine can run: it is no ELF file of this "
                  "architecture and has no #! line",
              {},
              "give it a first line such as #!/bin/sh, or run its interpreter with it"};
    case Detail::kIsDirectory:
      return {subject + " is a directory", {}, "name a program in it"};
    case Detail::kPlantedLink:
      return {"a symbolic link \"" + subject +
                  "\" on the way lies where a command can write, or is not root's, so it is not "
                  "followed",
              {},
              "name what it points to, or remove it"};
    case Detail::kUpperUnusable:
      return {"the kernel would make the overlay read-only, because it cannot work in " + subject,
              {},
              "put upper and work on a file system of the host's own that uid " +
                  std::to_string(plan.uid) +
                  " can write to, such as ext4, xfs or btrfs, or leave both out for a temporary "
                  "overlay"};
    case Detail::kOtherLink:
      return {"existing destination is " + subject, {}, {}};
    case Detail::kForeignIds:
    case Detail::kUnmappedIds:
      return explain_joined_ids(message.detail, subject);
    case Detail::kReadBack:
      return {"the kernel does not report what was set: " + subject,
              {},
              "this must never happen: please report it with the output of `belljar explain`"};
    case Detail::kMountApiUnavailable:
    case Detail::kNone:
      break;
  }
  std::string reason = errno_text(message.error);
  if (!subject.empty())
    reason += ": " + subject;
  else
    reason = "cannot " + plan.steps[static_cast<std::size_t>(message.step)].text() + ": " + reason;
  return {std::move(reason), {}, {}};
}

bool is_exec(const Plan& plan, const Message& message) {
  return message.step >= 0 &&
         std::holds_alternative<Exec>(plan.steps[static_cast<std::size_t>(message.step)].action);
}

}  // namespace

SetupFailure describe_failure(const Plan& plan, const policy::Policy& policy, const Host& host,
                              const Message& message) {
  SetupFailure failure;
  if (message.error != 0) failure.error = errno_name(message.error);
  if (message.step < 0) {
    failure.step = "start the sandbox's init";
    failure.reason = errno_text(message.error);
    return failure;
  }
  failure.index = message.step;
  failure.subject = subject_of(message);
  failure.number = message.error;
  failure.detail = message.detail;
  const auto index = static_cast<std::size_t>(message.step);
  const Step& step = plan.steps[index];
  failure.step = "step " + std::to_string(index + 1) + " of " + std::to_string(plan.steps.size()) +
                 ": " + step.text();
  failure.control = step.control;
  Explanation explanation = explain_detail(plan, policy, host, message);
  failure.reason = std::move(explanation.reason);
  failure.policy =
      origin_text(policy, explanation.because.empty() ? step.because : explanation.because);
  failure.hidden = explanation.hidden;
  failure.remedy = std::move(explanation.remedy);
  const Control* control = find_control(step.control);
  if (failure.remedy.empty() && control != nullptr)
    failure.remedy = control->remedy({&step, message.error, subject_of(message)}, policy, host);
  return failure;
}

SetupFailure describe_refusal(const Error& error, const policy::Policy& policy) {
  SetupFailure failure;
  if (error.sys_errno != 0) failure.error = errno_name(error.sys_errno);
  failure.number = error.sys_errno;
  failure.reason = error.what;
  failure.policy = origin_text(policy, error.where);
  failure.remedy = error.remedy;
  return failure;
}

Record refused_record(const policy::Policy& policy, const Error& error) {
  Record record;
  record.cause = Cause::kSetup;
  record.exit_code = 125;
  record.policy_name = policy.name;
  record.policy_digest = policy.digest;
  record.setup = describe_refusal(error, policy);
  return record;
}

bool makes_sense(const Message& message, const Plan& plan) {
  constexpr int kMaxErrno = 4095;  // The kernel's.
  const auto steps = static_cast<std::int32_t>(plan.steps.size());
  return message.kind <= MessageKind::kConnected && message.detail <= Detail::kPlantedLink &&
         message.step >= -1 && message.step < steps && message.error >= 0 &&
         message.error <= kMaxErrno &&
         message.proc_mode <= static_cast<std::uint32_t>(ProcMode::kAbsent) &&
         (message.kind != MessageKind::kHelper || message.pid > 1);
}

int exit_code_of(const Plan& plan, const Message& message) {
  if (!is_exec(plan, message)) return 125;
  return message.detail == Detail::kNotFound ? 127 : 126;
}

std::string failure_text(const SetupFailure& failure) {
  std::string text = "belljar: " + failure.reason;
  if (!failure.error.empty()) text += " (" + failure.error + ")";
  text += "\n";
  if (!failure.step.empty()) text += "belljar:   at " + failure.step + "\n";
  if (!failure.policy.empty())
    text += std::string("belljar:   ") + (failure.hidden ? "hidden" : "asked for") + " by " +
            failure.policy + "\n";
  if (!failure.remedy.empty()) text += "belljar:   remedy: " + failure.remedy + "\n";
  return text;
}

}  // namespace belljar::launcher
