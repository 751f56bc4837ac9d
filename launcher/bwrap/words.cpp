#include <cerrno>
#include <cstring>

#include "launcher/bwrap/drop_in.hpp"

namespace belljar::launcher::bwrap {
namespace {

/// What was being done, in the words that callers of bwrap know where there are such.
struct Said {
  const Plan& plan;
  const SetupFailure& failure;

  [[nodiscard]] const std::string& at(const std::string& otherwise) const {
    return failure.subject.empty() ? otherwise : failure.subject;
  }
  std::string operator()(const Exec&) const { return "execvp " + plan.argv.front(); }
  std::string operator()(const MakeSymlink& a) const {
    std::string said = "Can't make symlink at " + a.path;
    if (failure.detail == Detail::kOtherLink)
      said += ": existing destination is " + failure.subject;
    return said;
  }
  std::string operator()(const BindMount& a) const {
    if (failure.number == ESTALE)
      return "Race condition binding dirfd: " + a.source + " is another";
    if (failure.subject == a.source) return "Can't find source path " + a.source;
    const std::string what = "Can't bind mount " + a.source + " on " + a.target;
    return failure.subject.empty() || failure.subject == a.target ? what
                                                                  : what + ": " + failure.subject;
  }
  std::string operator()(const MakeDirectory& a) const { return "Can't mkdir " + at(a.path); }
  std::string operator()(const ChangeMode& a) const { return "Can't chmod " + at(a.path); }
  std::string operator()(const WriteFile& a) const { return "Can't write data to file " + a.path; }
  std::string operator()(const BindData& a) const { return "Can't write data to file " + a.target; }
  std::string operator()(const EnterDirectory& a) const {
    return "Can't chdir to " + at(a.candidates.front());
  }
  std::string operator()(const LockFile& a) const { return "Unable to open lock file " + a.path; }
  std::string operator()(const RemountReadOnly& a) const {
    return "Can't remount readonly on " + a.path;
  }
  std::string operator()(const CreateNamespaces&) const { return "Creating new namespace failed"; }
  std::string operator()(const MapIds&) const { return "setting up uid map"; }
  std::string operator()(const RaiseLoopback&) const { return "loopback: Failed to bring it up"; }
  std::string operator()(const InstallFilter&) const { return "prctl(PR_SET_SECCOMP)"; }
  std::string operator()(const JoinNamespace& a) const {
    return "Joining specified " + a.kind + " namespace failed";
  }
  std::string operator()(const JoinUser&) const {
    return "Joining specified user namespace failed";
  }
  std::string operator()(const CheckNoUser&) const {
    return "creation of new user namespaces was not disabled as requested";
  }
  template <class Action>
  std::string operator()(const Action&) const {
    const std::string step = plan.steps[static_cast<std::size_t>(failure.index)].text();
    return "Can't " + step + (failure.subject.empty() ? "" : ": " + failure.subject);
  }
};

/// The controls' own are about policies and belljar's options, which callers of bwrap have not.
std::string remedy(const Plan& plan, const Step& step, const SetupFailure& failure) {
  if (std::holds_alternative<Exec>(step.action))
    return failure.detail == Detail::kNotFound ? "show what holds it with --ro-bind SRC DEST, or "
                                                 "give its path"
                                               : "";
  if (std::holds_alternative<InstallFilter>(step.action) && failure.number == EINVAL)
    return "the kernel does not take this for a filter: it has to be a whole program of struct "
           "sock_filter, whose last instruction returns";
  if (std::holds_alternative<MountMqueue>(step.action) && failure.number == EPERM)
    return "a new mqueue takes an own ipc namespace: --unshare-ipc";
  const auto* bind = std::get_if<BindMount>(&step.action);
  if (bind != nullptr && (failure.number == EINVAL || failure.number == ENOTDIR))
    return "a directory can be bound on a directory alone, and everything else on a file";
  if (std::holds_alternative<MapIds>(step.action) && failure.number == EPERM && plan.uid == 0)
    return "mapping uid 0 takes CAP_SETFCAP, which containers have by default: give it, or run as "
           "another user";
  if (std::holds_alternative<MountProc>(step.action) && failure.number == EPERM)
    return "the kernel allows a new /proc only where the whole of an old one is seen: in a "
           "container, unmask its /proc, or bind /proc instead";
  if (std::holds_alternative<RemountReadOnly>(step.action) && failure.number == EINVAL)
    return "it is no mount point";
  if (failure.number == EROFS && !std::holds_alternative<MapIds>(step.action))
    return "what has to be made there lies in a read-only mount: make it on the host, or give its "
           "operation before that mount is made read-only";
  if (failure.number == EACCES && std::holds_alternative<LiteralRoot>(step.action))
    return "a security module (AppArmor) denies mounts to this caller: use a profile that allows "
           "mount, umount and pivot_root, see docs/hosts.md";
  const bool about_the_host =
      std::holds_alternative<CreateNamespaces>(step.action) ||
      std::holds_alternative<MapIds>(step.action) ||
      (step.control == std::string("filesystem") && failure.number == EPERM);
  if (about_the_host) return failure.remedy;
  if (std::holds_alternative<JoinNamespace>(step.action) && failure.number == EPERM)
    return "that takes CAP_SYS_ADMIN in the user namespace that it belongs to: join that one with "
           "--userns";
  if (failure.detail == Detail::kReadBack)
    return "this must never happen: please report it with the command line";
  if (step.control != "filesystem" || failure.number != EACCES) return {};
  return "owner and mode of it, or of a directory above it, keep the caller out; in a user "
         "namespace of its own root's capabilities count for root's files alone";
}

}  // namespace

std::vector<std::string> failure_lines(const Plan& plan, const SetupFailure& failure) {
  if (failure.index < 0) {
    std::vector<std::string> lines = {failure.reason};
    if (failure.number != 0) lines.front() += std::string(": ") + std::strerror(failure.number);
    if (!failure.remedy.empty()) lines.push_back("remedy: " + failure.remedy);
    return lines;
  }
  const Step& step = plan.steps[static_cast<std::size_t>(failure.index)];
  std::string line = std::visit(Said{plan, failure}, step.action);
  if (failure.number != 0 && failure.detail != Detail::kOtherLink)
    line += std::string(": ") + std::strerror(failure.number);
  std::vector<std::string> lines = {std::move(line)};
  if (failure.detail == Detail::kLoaderMissing)
    lines.push_back("the program asks for the dynamic loader " + failure.subject +
                    ", which is not in the sandbox");
  if (failure.detail == Detail::kInterpreterMissing)
    lines.push_back("the script asks for the interpreter " + failure.subject +
                    ", which is not in the sandbox");
  if (failure.detail == Detail::kReadBack)
    lines.push_back("the kernel does not report what was set: " + failure.subject);
  if (std::string text = remedy(plan, step, failure); !text.empty())
    lines.push_back("remedy: " + std::move(text));
  return lines;
}

}  // namespace belljar::launcher::bwrap
