#include "launcher/sys/landlock.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/controls/wanted.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::launcher {
namespace {

using policy::LandlockScope;

int try_connect(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  const int result =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 ? 0 : errno;
  close(fd);
  return result;
}

constexpr int kAbiOfScopes = 6;

/// The host's abstract sockets are kept out by a network of the sandbox's own, or by the domain.
const char* keeps_from_abstract_sockets(const Made& made) {
  if (has_own_network(made.policy, made.host)) return "network.mode";
  const policy::Landlock& wanted = made.policy.landlock;
  const bool scoped = std::find(wanted.scopes.begin(), wanted.scopes.end(),
                                LandlockScope::kAbstractUnixSocket) != wanted.scopes.end();
  // A policy may prefer it, and this kernel not have it.
  const bool had =
      wanted.enforce == policy::Enforce::kRequire || made.host.landlock_abi >= kAbiOfScopes;
  return scoped && had ? "landlock.scopes" : nullptr;
}

std::vector<Fact::Expected> expected_sockets(const Made& made) {
  std::vector<Fact::Expected> expected;
  const char* promised = keeps_from_abstract_sockets(made);
  if (!made.lures.abstract_socket.empty())
    expected.push_back({made.lures.abstract_socket, promised == nullptr ? "" : promised});
  return expected;
}

Seen look_at_socket(const std::string& name) {
  const int refusal = try_connect(name);
  return refusal == 0 ? differs("one of belljar's was connected to") : holds(errno_name(refusal));
}

/// Belljar could enter so many domains; inside there must be room for fewer.
std::vector<Fact::Expected> expected_domains(const Made& made) {
  const policy::Landlock& wanted = made.policy.landlock;
  const std::optional<int>& room = made.lures.landlock_domains;
  const bool has_some = wanted.filesystem || wanted.bind_tcp || wanted.connect_tcp ||
                        made.host.landlock_abi >= kAbiOfScopes;
  const bool prefers = wanted.enforce == policy::Enforce::kPrefer;
  if (!wanted.asks_for_something() || !room || (prefers && !has_some)) return {};
  return {{std::to_string(*room), "landlock", prefers}};
}

Seen look_at_domains(const std::string& ours) {
  const int room = room_for_landlock_domains();
  if (room < 0) return unseen("landlock_restrict_self: " + errno_name(-room));
  if (room < std::atoi(ours.c_str())) return holds();
  return differs("the command is in no domain that belljar is not in");
}

constexpr Fact kFacts[] = {
    {"abstract-socket", "abstract unix sockets of the host can be connected to", look_at_socket,
     expected_sockets},
    {"landlock-domain", "there is no Landlock domain", look_at_domains, expected_domains},
};

/// A right that not every kernel with Landlock has.
struct Right {
  std::uint64_t bit;
  int abi;
  std::string_view kernel;
  std::string_view name;     ///< As the kernel calls it.
  std::string_view without;  ///< What a sandbox is like that goes without.
};

constexpr std::array kFileRights = {
    Right{sys::kLandlockRefer, 2, "5.19", "refer",
          "no file can be moved or linked into another directory"},
    Right{sys::kLandlockTruncate, 3, "6.2", "truncate", "truncation is left to the mounts"},
    Right{sys::kLandlockIoctlDev, 5, "6.10", "ioctl_dev", "ioctl on devices is left to the filter"},
};
constexpr std::array kTcpRights = {
    Right{sys::kLandlockBindTcp, 4, "6.7", "bind_tcp", "any TCP port can be bound"},
    Right{sys::kLandlockConnectTcp, 4, "6.7", "connect_tcp", "any TCP port can be connected to"},
};
constexpr std::array kScopes = {
    Right{sys::kLandlockScopeAbstractUnix, 6, "6.12", "abstract_unix_socket",
          "abstract unix sockets of the network namespace can be connected to"},
    Right{sys::kLandlockScopeSignal, 6, "6.12", "signal",
          "signals are left to the process namespace"},
};

/// Those of the first version.
constexpr std::uint64_t kFirstFileRights = (1U << 13) - 1;

constexpr std::uint64_t kReading = sys::kLandlockReadFile | sys::kLandlockReadDir;
constexpr std::uint64_t kWriting = sys::kLandlockWriteFile | sys::kLandlockTruncate;
/// All but device nodes, of which nobody in the sandbox has any use.
constexpr std::uint64_t kChanging = kWriting | sys::kLandlockRemoveDir | sys::kLandlockRemoveFile |
                                    sys::kLandlockMakeDir | sys::kLandlockMakeReg |
                                    sys::kLandlockMakeSock | sys::kLandlockMakeFifo |
                                    sys::kLandlockMakeSym | sys::kLandlockRefer;

std::uint64_t access_of(unsigned flags) {
  std::uint64_t access = kReading;
  if (!(flags & kNoExec)) access |= sys::kLandlockExecute;
  if (!(flags & kNoDev)) access |= sys::kLandlockIoctlDev;
  if (!(flags & kReadOnly)) access |= kChanging;
  return access;
}

/// The rules that follow from what is mounted. Beneath a path the rights of all paths above it add
/// up, so a read-only mount inside a writable one is held by its flags alone.
struct Rules {
  std::vector<LandlockPath>& paths;

  void operator()(const AttachRoot& a) const {
    // Of our own root its directories can be listed; what lies in them has rules of its own.
    paths.push_back({"/", a.source ? access_of(a.flags) : sys::kLandlockReadDir});
  }
  void operator()(const BindMount& a) const { paths.push_back({a.target, access_of(a.flags)}); }
  void operator()(const MountTmpfs& a) const { paths.push_back({a.target, access_of(a.flags)}); }
  void operator()(const MountOverlay& a) const { paths.push_back({a.target, access_of(a.flags)}); }
  void operator()(const BindData& a) const { paths.push_back({a.target, access_of(a.flags)}); }
  void operator()(const MountMqueue& a) const {
    paths.push_back(
        {a.target, kReading | kWriting | sys::kLandlockMakeReg | sys::kLandlockRemoveFile});
  }
  void operator()(const MountProc& a) const {
    const bool read_only = a.first == ProcMode::kFullReadOnly || a.first == ProcMode::kPidsReadOnly;
    paths.push_back({a.target, kReading | (read_only ? 0 : kWriting)});
  }
  void operator()(const MountDev& a) const {
    paths.push_back({a.target, kReading | kWriting | sys::kLandlockIoctlDev});
    paths.push_back({join(a.target, "shm"), access_of(a.shm_flags)});
  }
  void operator()(const MakeFile& a) const {
    paths.push_back(
        {a.path, sys::kLandlockReadFile | ((a.mode & 0111) != 0 ? sys::kLandlockExecute : 0)});
  }
  template <class Other>
  void operator()(const Other& other) const {
    // A new kind of mount does not compile until it says what its rule is.
    static_assert(!requires { other.target; });
  }
};

class Domain {
 public:
  explicit Domain(PlanBuilder& builder)
      : builder_(builder), wanted_(builder.policy.landlock), abi_(builder.host.landlock_abi) {}

  Status plan() {
    if (!wanted_.asks_for_something()) return {};
    if (abi_ < 1) return go_without();
    step_.abi = abi_;
    BELLJAR_CHECK(add_files());
    BELLJAR_CHECK(add_tcp());
    BELLJAR_CHECK(add_scopes());
    if ((step_.files | step_.tcp | step_.scopes) != 0)
      builder_.add(Phase::kLandlock, std::move(step_), "landlock");
    return {};
  }

 private:
  [[nodiscard]] bool prefers() const { return wanted_.enforce == policy::Enforce::kPrefer; }

  Status go_without() {
    const std::string what = abi_ == -EOPNOTSUPP
                                 ? "Landlock is not among this kernel's active security modules"
                                 : "this kernel has no Landlock, or a filter keeps it from belljar";
    if (!prefers())
      return fail({ErrorKind::kUnavailable, abi_ < 0 ? -abi_ : ENOSYS, what, "landlock",
                   remedy_text(-abi_) + "; or write \"enforce\": \"prefer\" to go without"});
    if (wanted_.filesystem || wanted_.bind_tcp || wanted_.connect_tcp) {
      builder_.degrade(what);
      return {};
    }
    for (const LandlockScope scope : wanted_.scopes)
      if (!is_held_by_namespaces(scope)) builder_.degrade(what + ": " + without(scope));
    return {};
  }

  /// Without the right the launch is refused, or is said to be without it.
  Status lack(const Right& right, const char* where) {
    if (prefers()) {
      builder_.degrade("no " + std::string(right.name) + " before Linux " +
                       std::string(right.kernel) + ": " + std::string(right.without));
      return {};
    }
    return fail({ErrorKind::kUnavailable, 0,
                 "this kernel's Landlock (ABI " + std::to_string(abi_) + ") has no " +
                     std::string(right.name),
                 where,
                 "use Linux " + std::string(right.kernel) +
                     " or later, or write \"enforce\": \"prefer\" to go without"});
  }

  Status add_files() {
    if (!wanted_.filesystem) return {};
    step_.files = kFirstFileRights;
    for (const Right& right : kFileRights) {
      if (abi_ >= right.abi)
        step_.files |= right.bit;
      else
        BELLJAR_CHECK(lack(right, "landlock.filesystem"));
    }
    builder_.visit_planned(Rules{step_.paths});
    step_.descriptors = builder_.policy.io.keep;
    step_.descriptors.insert(step_.descriptors.end(), {0, 1, 2});
    if (builder_.policy.namespaces.nested_user)
      builder_.notes.emplace_back(
          "under landlock.filesystem no program can mount anything, in user namespaces of its own "
          "neither");
    return {};
  }

  Status add_tcp() {
    BELLJAR_CHECK(add_ports(wanted_.bind_tcp, kTcpRights[0], "landlock.bind_tcp"));
    return add_ports(wanted_.connect_tcp, kTcpRights[1], "landlock.connect_tcp");
  }

  Status add_ports(const std::optional<std::vector<std::uint16_t>>& ports, const Right& right,
                   const char* where) {
    if (!ports) return {};
    if (abi_ < right.abi) return lack(right, where);
    step_.tcp |= right.bit;
    for (const std::uint16_t port : *ports) step_.ports.push_back({port, right.bit});
    return {};
  }

  Status add_scopes() {
    for (const LandlockScope scope : wanted_.scopes) {
      const Right& right = right_of(scope);
      if (abi_ >= right.abi)
        step_.scopes |= right.bit;
      else if (!prefers() || !is_held_by_namespaces(scope))
        BELLJAR_CHECK(lack(right, "landlock.scopes"));
    }
    return {};
  }

  static const Right& right_of(LandlockScope scope) {
    return kScopes[scope == LandlockScope::kAbstractUnixSocket ? 0 : 1];
  }
  static std::string without(LandlockScope scope) { return std::string(right_of(scope).without); }

  /// Whether nothing is lost without the scope: processes are always the sandbox's own, abstract
  /// names belong to the network namespace.
  [[nodiscard]] bool is_held_by_namespaces(LandlockScope scope) const {
    return scope == LandlockScope::kSignal ||
           (namespace_flags(builder_.policy, builder_.host) & CLONE_NEWNET) != 0;
  }

  static std::string remedy_text(int error) {
    if (error == EOPNOTSUPP)
      return "add landlock to lsm= on the kernel's command line (CONFIG_LSM has the default list)";
    return "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK; in a container its seccomp "
           "profile must allow the landlock_* calls, as those of Docker 20.10.24 and later do";
  }

  PlanBuilder& builder_;
  const policy::Landlock& wanted_;
  int abi_;
  TakeLandlock step_;
};

Status plan(PlanBuilder& builder) { return Domain(builder).plan(); }

std::vector<Requirement> require(const policy::Policy& policy, const Host&) {
  const policy::Landlock& wanted = policy.landlock;
  if (!wanted.asks_for_something() || wanted.enforce == policy::Enforce::kPrefer) return {};
  std::vector<Requirement> needed;
  if (wanted.filesystem)
    needed.push_back({"Landlock of ABI 5 (Linux 6.10) for rules on files", "landlock.filesystem"});
  if (wanted.bind_tcp || wanted.connect_tcp)
    needed.push_back({"Landlock of ABI 4 (Linux 6.7) for rules on TCP ports", "landlock"});
  if (!wanted.scopes.empty())
    needed.push_back({"Landlock of ABI 6 (Linux 6.12) for scopes", "landlock.scopes"});
  return needed;
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  if (failed.sys_errno == E2BIG)
    return "the kernel allows 16 Landlock domains one inside the other, and belljar is in as many";
  if (failed.sys_errno == ENOSYS || failed.sys_errno == EPERM)
    return "a security module or a container's seccomp profile refuses the landlock_* calls: allow "
           "them there";
  return {};
}

/// -errno when none can be entered at all, otherwise how many.
int enter_all_domains() {
  constexpr int kMost = 16;  // LANDLOCK_MAX_NUM_LAYERS
  const sys::LandlockRulesetAttr attributes{sys::kLandlockMakeChar, 0, 0};
  // The first version's size: the rest is of no use here.
  const long rules = sys::raw(sys::kLandlockCreateRuleset, &attributes, sizeof attributes.files, 0);
  if (rules < 0) return static_cast<int>(rules);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -errno;
  for (int entered = 0; entered <= kMost; ++entered) {
    const long done = sys::raw(sys::kLandlockRestrictSelf, rules, 0);
    if (done == -E2BIG) return entered;
    if (done < 0) return static_cast<int>(done);
  }
  return kMost;
}

}  // namespace

int room_for_landlock_domains() {
  const pid_t child = fork();
  if (child < 0) return -errno;
  // A number from 0 to 16, or an errno behind them.
  constexpr int kFirstError = 32;
  if (child == 0) {
    const int room = enter_all_domains();
    _exit(room >= 0 ? room : kFirstError - room);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -errno;
  if (!WIFEXITED(status)) return -EFAULT;
  const int answer = WEXITSTATUS(status);
  return answer < kFirstError ? answer : kFirstError - answer;
}

std::vector<LandlockLack> landlock_lacks(const policy::Landlock& wanted, int abi,
                                         bool own_network) {
  std::vector<LandlockLack> found;
  const auto look_at = [&](const Right& right) {
    if (abi < right.abi) found.push_back({right.name, right.kernel, right.without});
  };
  if (wanted.filesystem) std::for_each(kFileRights.begin(), kFileRights.end(), look_at);
  if (wanted.bind_tcp) look_at(kTcpRights[0]);
  if (wanted.connect_tcp) look_at(kTcpRights[1]);
  for (const LandlockScope scope : wanted.scopes) {
    const bool held = scope == LandlockScope::kSignal || own_network;
    if (wanted.enforce == policy::Enforce::kRequire || !held)
      look_at(kScopes[scope == LandlockScope::kAbstractUnixSocket ? 0 : 1]);
  }
  return found;
}

const Control kLandlock = {
    "landlock",
    "what the mounts, ports and scopes do not name is refused a second time (read back by a call "
    "of each kind but signals, which must fail)",
    require,
    plan,
    nullptr,
    {},
    remedy,
    kFacts};

}  // namespace belljar::launcher
