#include "launcher/denial_watch.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "launcher/controls/paths.hpp"
#include "launcher/record.hpp"
#include "launcher/seccomp/evaluate.hpp"
#include "launcher/seccomp/names.hpp"
#include "launcher/seccomp/watch.hpp"
#include "launcher/session_process.hpp"
#include "launcher/sys/kernel.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace belljar::launcher {
namespace {

using sys::UniqueFd;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostDenials = 100;
/// Different questions that are remembered; what comes after them is not looked at.
constexpr std::size_t kMostSeen = 50'000;
/// Of all of them together: the command chooses how long its paths are.
constexpr std::size_t kMostSeenBytes = 8 << 20;

/// A thread that waits in a call, and what of it can be read meanwhile.
class Caller {
 public:
  explicit Caller(pid_t thread) : directory_("/proc/" + std::to_string(thread)) {}

  /// The text at `address`; nothing when it cannot be read or is longer than a path.
  [[nodiscard]] std::optional<std::string> text(std::uint64_t address) const {
    std::string all;
    while (all.size() < PATH_MAX) {
      // A page at a time: the next one may not be there.
      constexpr std::uint64_t kPage = 4096;
      std::array<char, kPage> piece{};
      const std::uint64_t from = address + all.size();
      const auto length = static_cast<std::size_t>(kPage - from % kPage);
      if (!read(from, piece.data(), length)) return std::nullopt;
      const std::size_t size = strnlen(piece.data(), length);
      all.append(piece.data(), size);
      if (size < length) return all;
    }
    return std::nullopt;
  }

  bool read(std::uint64_t address, void* into, std::size_t size) const {
    const UniqueFd memory(open((directory_ + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    return memory.valid() && pread(memory.get(), into, size, static_cast<off_t>(address)) ==
                                 static_cast<ssize_t>(size);
  }

  /// What a path that does not begin with / begins at, as the sandbox names it.
  [[nodiscard]] std::string base(std::uint64_t descriptor) const {
    const auto number = static_cast<int>(descriptor);
    const std::string link =
        directory_ + (number == AT_FDCWD ? "/cwd" : "/fd/" + std::to_string(number));
    std::array<char, PATH_MAX> found{};
    const ssize_t got = readlink(link.c_str(), found.data(), found.size());
    return got <= 0 ? std::string() : std::string(found.data(), static_cast<std::size_t>(got));
  }

  [[nodiscard]] UniqueFd root() const {
    return UniqueFd(open((directory_ + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }

  /// SOCK_STREAM, ... of one of its sockets; -1 when that cannot be told.
  [[nodiscard]] int socket_type(std::uint64_t descriptor) const {
    const UniqueFd process(static_cast<int>(sys::raw(SYS_pidfd_open, process_number(), 0U)));
    if (!process.valid()) return -1;
    const UniqueFd copy(static_cast<int>(
        sys::raw(SYS_pidfd_getfd, process.get(), static_cast<int>(descriptor), 0U)));
    int type = -1;
    socklen_t size = sizeof type;
    return getsockopt(copy.get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 ? type : -1;
  }

 private:
  /// Of the process that the thread is one of.
  [[nodiscard]] int process_number() const {
    const UniqueFd file(open((directory_ + "/status").c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 4096> text{};
    if (::read(file.get(), text.data(), text.size() - 1) <= 0) return -1;
    const char* line = std::strstr(text.data(), "\nTgid:");
    return line == nullptr ? -1 : std::atoi(line + 6);
  }

  std::string directory_;
};

/// What was asked for below `missing`, which is not there: "/missing/b" of "//a/../b". As far as it
/// is below it.
std::string below_missing(const std::string& missing, std::string_view rest) {
  std::string path = missing;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name.empty() || name == ".") continue;
    if (name == ".." && path == missing) break;
    path = name == ".." ? parent_of(path) : join(path, name);
  }
  return path;
}

/// Where a path leads inside, followed one name at a time and never out of `root`: opened without
/// being opened (O_PATH), so that no FIFO or device notices.
class Steps {
 public:
  explicit Steps(UniqueFd root, const DenialJudge& judge) : judge_(judge) {
    open_.push_back(std::move(root));
  }

  /// 0, or the errno of the name that stopped it; EXDEV where only the kernel knows on.
  int follow(std::string rest, bool last_link) {
    if (!open_.front().valid()) return EXDEV;
    for (int links = 0;;) {
      const std::size_t from = rest.find_first_not_of('/');
      if (from == std::string::npos) return 0;
      const std::size_t end = std::min(rest.find('/', from), rest.size());
      const std::string name = rest.substr(from, end - from);
      rest.erase(0, end);
      const bool last = rest.find_first_not_of('/') == std::string::npos;
      if (name == ".") continue;
      if (name == "..") {
        if (open_.size() > 1) open_.pop_back(), path_ = parent_of(path_);
        continue;
      }
      const std::string next = join(path_, name);
      if (judge_.is_kernels(next)) return EXDEV;
      UniqueFd fd(openat(open_.back().get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      if (!fd.valid()) return stop_at(below_missing(next, rest), last, errno);
      struct stat about {};
      if (fstat(fd.get(), &about) != 0) return errno;
      if (S_ISLNK(about.st_mode) && (!last || last_link)) {
        std::array<char, PATH_MAX> text{};
        const ssize_t got = readlinkat(fd.get(), "", text.data(), text.size());
        if (got <= 0 || ++links > 40) return ELOOP;
        if (text[0] == '/') open_.resize(1), path_ = "/";
        rest = std::string(text.data(), static_cast<std::size_t>(got)) + "/" + rest;
        continue;
      }
      open_.push_back(std::move(fd));
      path_ = next;
    }
  }

  /// What was reached, or what was missing.
  [[nodiscard]] const std::string& path() const { return missing_.empty() ? path_ : missing_; }
  [[nodiscard]] const std::string& reached() const { return path_; }
  /// Only the last name was missing.
  [[nodiscard]] bool only_last() const { return only_last_; }

  /// 0, or why the session may not do this with what was reached.
  [[nodiscard]] int access(int wanted) const { return access_of(open_.back(), wanted); }
  [[nodiscard]] int access_of_parent(int wanted) const {
    return access_of(open_.size() > 1 ? open_[open_.size() - 2] : open_.back(), wanted);
  }

  [[nodiscard]] bool is_device() const {
    struct stat about {};
    return fstat(open_.back().get(), &about) == 0 &&
           (S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode));
  }

 private:
  int stop_at(std::string missing, bool last, int error) {
    missing_ = std::move(missing);
    only_last_ = last && error == ENOENT;
    return error;
  }

  static int access_of(const UniqueFd& fd, int wanted) {
    const std::string name = "/proc/self/fd/" + std::to_string(fd.get());
    return faccessat(AT_FDCWD, name.c_str(), wanted, 0) == 0 ? 0 : errno;
  }

  const DenialJudge& judge_;
  std::vector<UniqueFd> open_;
  std::string path_ = "/";
  std::string missing_;
  bool only_last_ = false;
};

class Listener {
 public:
  Listener(int listener, const Plan& plan, const policy::Policy& policy, const Host& host)
      : listener_(listener), judge_(plan, policy, host) {
    for (const Step& step : plan.steps)
      if (const auto* install = std::get_if<InstallFilter>(&step.action); install != nullptr)
        judged_ = install->judged ? &*install->judged : nullptr;
    for (const WatchedCall& call : watched_calls())
      if (const Result<int> number = resolve_syscall(call.name)) calls_.emplace(*number, &call);
    // The kernel's structures may be larger than those of the headers (man 2 seccomp_unotify).
    seccomp_notif_sizes sizes{};
    if (sys::raw(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
      sizes = {sizeof(seccomp_notif), sizeof(seccomp_notif_resp), 0};
    request_.resize(std::max<std::size_t>(sizes.seccomp_notif, sizeof(seccomp_notif)));
    answer_.resize(std::max<std::size_t>(sizes.seccomp_notif_resp, sizeof(seccomp_notif_resp)));
  }

  /// Until `way` says that it is over.
  void serve(int way) {
    for (;;) {
      std::array<pollfd, 2> ready = {{{listener_, POLLIN, 0}, {way, POLLIN, 0}}};
      if (poll(ready.data(), ready.size(), -1) < 0) continue;
      if (ready[0].revents & POLLIN) hear();
      // Nobody is left who could be refused anything.
      else if (ready[0].revents != 0)
        listener_ = -1;
      if (ready[1].revents != 0) return;
    }
  }

  [[nodiscard]] std::string report() const {
    Json json;
    json["not_kept"] = not_kept_;
    json["unread"] = unread_;
    json["unseen"] = unseen_;
    json["list"] = Json::array();
    for (const Denial& denial : denials_)
      json["list"].push_back({denial.what, denial.subject, denial.error, denial.because,
                              denial.policy, denial.change, denial.times, denial.expected});
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  void hear() {
    std::fill(request_.begin(), request_.end(), std::byte{});
    auto& request = *reinterpret_cast<seccomp_notif*>(request_.data());
    if (ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) return;
    const std::uint32_t verdict = verdict_on(request.data);
    const std::uint32_t action = verdict & SECCOMP_RET_ACTION_FULL;
    const bool refused = action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG;
    const auto error =
        static_cast<int>(action == SECCOMP_RET_ERRNO ? verdict & SECCOMP_RET_DATA : EPERM);
    if (refused)
      note("call " + std::to_string(request.data.nr) + " " + std::to_string(error) +
               (makes_user_namespace(request.data) ? " user" : ""),
           [&] { return std::optional(judge_.call(request.data, error)); });
    else
      look(request);
    answer(request.id, refused ? error : 0);
  }

  /// What the policy's own filter says. It looks at registers only, of which the kernel has made
  /// this copy: the command can change nothing of it any more.
  [[nodiscard]] std::uint32_t verdict_on(const seccomp_data& data) const {
    if (judged_ == nullptr) return SECCOMP_RET_ALLOW;
    const std::optional<Evaluation> found = evaluate(judged_->instructions(), data);
    return found ? found->value : SECCOMP_RET_ERRNO | EPERM;
  }

  /// "Continue" is said of calls alone that the policy's filter allows whatever memory their
  /// arguments point to. What the command changes there while it waits changes what is written
  /// down, and nothing that is decided: mounts, owners and Landlock decide after this, in the
  /// kernel.
  void answer(std::uint64_t id, int error) {
    std::fill(answer_.begin(), answer_.end(), std::byte{});
    auto& answer = *reinterpret_cast<seccomp_notif_resp*>(answer_.data());
    answer.id = id;
    answer.error = -error;
    if (error == 0) answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    // ENOENT: the caller was killed meanwhile. EINVAL is a kernel before 5.5, which cannot
    // continue: without a listener all fails, and belljar sees it end.
    if (ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &answer) != 0 && errno == EINVAL) _exit(3);
  }

  template <class Make>
  void note(const std::string& key, Make&& make) {
    if (const auto found = seen_.find(key); found != seen_.end()) {
      if (found->second >= 0) ++denials_[static_cast<std::size_t>(found->second)].times;
      return;
    }
    if (seen_.size() >= kMostSeen || seen_bytes_ + key.size() > kMostSeenBytes) {
      ++unseen_;
      return;
    }
    seen_bytes_ += key.size();
    int& index = seen_[key] = -1;
    std::optional<Denial> denial = make();
    if (!denial) return;
    // One thing that was asked for by several names.
    for (std::size_t i = 0; i < denials_.size(); ++i)
      if (denials_[i].what == denial->what && denials_[i].subject == denial->subject &&
          denials_[i].error == denial->error && denials_[i].because == denial->because) {
        index = static_cast<int>(i);
        ++denials_[i].times;
        return;
      }
    if (denials_.size() >= kMostDenials) {
      ++not_kept_;
      return;
    }
    index = static_cast<int>(denials_.size());
    denials_.push_back(std::move(*denial));
  }

  void look(const seccomp_notif& request) {
    const auto found = calls_.find(request.data.nr);
    if (found == calls_.end()) return;
    const WatchedCall& call = *found->second;
    const Caller caller(static_cast<pid_t>(request.pid));
    // belljar's own search for the command on PATH, until its exec.
    if (is_our_text(request.data.instruction_pointer)) return;
    if (call.shape == CallShape::kConnect || call.shape == CallShape::kBind)
      return look_at_address(call, caller, request);
    const auto argument = [&](int index) {
      return index < 0 ? static_cast<std::uint64_t>(AT_FDCWD) : request.data.args[index];
    };
    look_at_path(call, call.shape, caller, argument(call.directory), argument(call.path), request);
    if (call.other_path >= 0)
      look_at_path(call, CallShape::kMake, caller, argument(call.other_directory),
                   argument(call.other_path), request);
  }

  static bool is_our_text(std::uint64_t address) {
    return address >= reinterpret_cast<std::uintptr_t>(__ehdr_start) &&
           address < reinterpret_cast<std::uintptr_t>(_end);
  }

  /// What was read is of this call, and not of a process that has got the number since.
  [[nodiscard]] bool still_waits(const seccomp_notif& request) const {
    std::uint64_t id = request.id;
    return ioctl(listener_, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
  }

  struct Wish {
    bool read = false, write = false, make = false, exec = false;
  };

  static Wish wish_of_flags(std::uint64_t flags) {
    const auto mode = flags & O_ACCMODE;
    if (flags & O_PATH) return {};
    return {mode != O_WRONLY, mode != O_RDONLY || (flags & O_TRUNC) != 0, (flags & O_CREAT) != 0,
            false};
  }

  /// Nothing when an argument cannot be read.
  static std::optional<Wish> wish_of(CallShape shape, const WatchedCall& call, const Caller& caller,
                                     const seccomp_data& data) {
    const std::uint64_t more = call.more < 0 ? 0 : data.args[call.more];
    switch (shape) {
      case CallShape::kOpen:
        return wish_of_flags(more);
      case CallShape::kOpenHow: {
        std::uint64_t flags = 0;
        if (!caller.read(more, &flags, sizeof flags)) return std::nullopt;
        return wish_of_flags(flags);
      }
      case CallShape::kAccess:
        return Wish{(more & R_OK) != 0, (more & W_OK) != 0, false, (more & X_OK) != 0};
      case CallShape::kCreate:
        return Wish{false, true, true, false};
      case CallShape::kExec:
        return Wish{false, false, false, true};
      case CallShape::kChange:
        return Wish{false, true, false, false};
      case CallShape::kMake:
        return Wish{false, false, true, false};
      case CallShape::kLook:
      case CallShape::kRemove:
      case CallShape::kConnect:
      case CallShape::kBind:
        break;
    }
    return Wish{};
  }

  void look_at_path(const WatchedCall& call, CallShape shape, const Caller& caller,
                    std::uint64_t directory, std::uint64_t address, const seccomp_notif& request) {
    std::optional<std::string> path = caller.text(address);
    const std::optional<Wish> wish = wish_of(shape, call, caller, request.data);
    std::string base;
    if (path && !path->empty() && !path->starts_with('/')) base = caller.base(directory);
    if (!path || !wish || !still_waits(request)) {
      ++unread_;
      return;
    }
    if (path->empty() || (!path->starts_with('/') && !base.starts_with('/'))) return;
    if (!base.empty()) *path = join(base, *path);
    const std::string key = std::to_string(static_cast<int>(shape)) + (wish->read ? "r" : "") +
                            (wish->write ? "w" : "") + (wish->make ? "m" : "") +
                            (wish->exec ? "x" : "") + *path;
    note(key, [&] { return judge_path(shape, *wish, caller, *path); });
  }

  [[nodiscard]] std::optional<Denial> judge_path(CallShape shape, const Wish& wish,
                                                 const Caller& caller,
                                                 const std::string& path) const {
    Steps steps(caller.root(), judge_);
    const bool follows = shape != CallShape::kRemove && shape != CallShape::kMake;
    const int stopped = steps.follow(path, follows);
    if (stopped == EXDEV) return std::nullopt;
    const Verb verb = wish.exec ? Verb::kExec : wish.write ? Verb::kWrite : Verb::kRead;
    if (stopped != 0 && steps.only_last() && wish.make) {
      const int error = steps.access(W_OK | X_OK);
      if (error == 0) return std::nullopt;
      return judge_.path(Verb::kWrite, steps.reached(), error);
    }
    if (stopped != 0) return judge_.path(verb, steps.path(), stopped);
    if (shape == CallShape::kMake) return std::nullopt;  // It is there already.
    if (shape == CallShape::kRemove) {
      const int error = steps.access_of_parent(W_OK | X_OK);
      return error == 0 ? std::nullopt
                        : judge_.path(Verb::kWrite, parent_of(steps.reached()), error);
    }
    return judge_reached(steps, shape, wish);
  }

  [[nodiscard]] std::optional<Denial> judge_reached(const Steps& steps, CallShape shape,
                                                    const Wish& wish) const {
    const std::string& path = steps.reached();
    const bool opens = wish.read || wish.write;
    // The mode of a device says nothing of nodev, nor does that of the one that stands for a masked
    // file.
    if (steps.is_device() && (opens || wish.exec))
      if (auto denial = judge_.path(wish.write ? Verb::kWrite : Verb::kRead, path, EACCES))
        return denial;
    const std::array<std::tuple<bool, int, Verb>, 3> wants = {{{wish.read, R_OK, Verb::kRead},
                                                               {wish.write, W_OK, Verb::kWrite},
                                                               {wish.exec, X_OK, Verb::kExec}}};
    for (const auto& [wanted, mode, verb] : wants) {
      const int error = wanted ? steps.access(mode) : 0;
      // A change of mode or time is the owner's whatever the mode says.
      if (error == 0 || (shape == CallShape::kChange && error != EROFS)) continue;
      return judge_.path(verb, path, error);
    }
    return std::nullopt;
  }

  void look_at_address(const WatchedCall& call, const Caller& caller,
                       const seccomp_notif& request) {
    sockaddr_storage address{};
    const std::size_t size = std::min<std::size_t>(request.data.args[2], sizeof address);
    if (size < sizeof(sa_family_t)) return;
    if (!caller.read(request.data.args[1], &address, size) || !still_waits(request)) {
      ++unread_;
      return;
    }
    if (address.ss_family == AF_UNIX) return look_at_socket_file(call, caller, address, size);
    const bool six = address.ss_family == AF_INET6;
    if (!six && address.ss_family != AF_INET) return;
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    const auto& wide = reinterpret_cast<const sockaddr_in6&>(address);
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* raw_address = six ? static_cast<const void*>(&wide.sin6_addr) : &four.sin_addr;
    if (inet_ntop(address.ss_family, raw_address, text.data(), text.size()) == nullptr) return;
    const std::uint16_t port = ntohs(six ? wide.sin6_port : four.sin_port);
    const bool loopback = six ? IN6_IS_ADDR_LOOPBACK(&wide.sin6_addr) != 0
                              : (ntohl(four.sin_addr.s_addr) >> 24) == 127;
    const bool tcp = caller.socket_type(request.data.args[0]) == SOCK_STREAM;
    const std::string name = six ? "[" + std::string(text.data()) + "]" : text.data();
    note(std::string(call.name) + (tcp ? " tcp " : " ") + name + ":" + std::to_string(port), [&] {
      return call.shape == CallShape::kConnect ? judge_.connect(name, port, loopback, tcp)
                                               : judge_.bind(name, port, tcp);
    });
  }

  void look_at_socket_file(const WatchedCall& call, const Caller& caller,
                           const sockaddr_storage& address, std::size_t size) {
    const auto& local = reinterpret_cast<const sockaddr_un&>(address);
    const std::size_t begin = offsetof(sockaddr_un, sun_path);
    if (size <= begin || local.sun_path[0] == '\0') return;
    std::string path(local.sun_path, strnlen(local.sun_path, size - begin));
    if (!path.starts_with('/'))
      path = join(caller.base(static_cast<std::uint64_t>(AT_FDCWD)), path);
    if (!path.starts_with('/')) return;
    const bool connects = call.shape == CallShape::kConnect;
    note(std::string(call.name) + " " + path, [&] {
      return judge_path(connects ? CallShape::kLook : CallShape::kMake,
                        Wish{false, connects, !connects, false}, caller, path);
    });
  }

  int listener_;
  const SeccompFilter* judged_ = nullptr;
  const DenialJudge judge_;
  std::unordered_map<int, const WatchedCall*> calls_;
  std::vector<std::byte> request_;
  std::vector<std::byte> answer_;
  std::unordered_map<std::string, int> seen_;  ///< What was asked -> which denial; -1: none.
  std::size_t seen_bytes_ = 0;
  std::vector<Denial> denials_;
  std::uint64_t not_kept_ = 0;
  std::uint64_t unread_ = 0;
  std::uint64_t unseen_ = 0;
};

[[noreturn]] void run_listener(int listener, int way, const Plan& plan,
                               const policy::Policy& policy, const Host& host) {
  // belljar's control socket among them, which must not outlive it.
  close_all_but({listener, way, sys::proc_directory()});
  become_the_session(plan.uid, plan.gid);
  Host own = host;
  own.uid = plan.uid;
  own.gid = plan.gid;
  own.capabilities = 0;
  Listener served(listener, plan, policy, own);
  served.serve(way);
  const std::string report = served.report();
  for (std::size_t done = 0; done < report.size();) {
    const ssize_t wrote = send(way, report.data() + done, report.size() - done, MSG_NOSIGNAL);
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  _exit(0);
}

/// What comes until the end of file, within five seconds and a mebibyte.
std::string read_all(int fd) {
  constexpr std::size_t kMost = 1 << 20;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  std::string all;
  while (all.size() < kMost) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0) break;
    std::array<char, 4096> piece{};
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got <= 0) break;
    all.append(piece.data(), static_cast<std::size_t>(got));
  }
  return all;
}

std::optional<Denial> denial_of(const Json& row) {
  if (!row.is_array() || row.size() != 8) return std::nullopt;
  for (std::size_t i = 0; i < 6; ++i)
    if (!row[i].is_string()) return std::nullopt;
  if (!row[6].is_number_unsigned() || !row[7].is_boolean()) return std::nullopt;
  const auto text = [&row](std::size_t i) { return row[i].get<std::string>(); };
  return Denial{
      text(0),           text(1), text(2), text(3), text(4), text(5), row[6].get<std::uint64_t>(),
      row[7].get<bool>()};
}

Denials parse(const std::string& report) {
  Denials denials;
  const Json json = Json::parse(report, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    denials.notes.emplace_back("what was refused is not known: who listened did not answer");
    return denials;
  }
  const auto number = [&json](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  };
  denials.not_kept = number("not_kept");
  if (const auto list = json.find("list"); list != json.end())
    for (const Json& row : *list)
      if (std::optional<Denial> denial = denial_of(row)) denials.list.push_back(std::move(*denial));
  if (const std::uint64_t count = number("unread"); count != 0)
    denials.notes.push_back(std::to_string(count) +
                            " calls whose arguments could not be read were not looked at");
  if (const std::uint64_t count = number("unseen"); count != 0)
    denials.notes.push_back(std::to_string(count) + " calls after the first " +
                            std::to_string(kMostSeen) +
                            " different ones, or 8 MiB of their paths,"
                            " were not looked at");
  return denials;
}

}  // namespace

DenialWatch::~DenialWatch() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

Status DenialWatch::start(UniqueFd listener) {
  std::array<int, 2> ends{};
  if (pid_ > 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return sys_failure(pid_ > 0 ? EEXIST : errno, "make a socket for who listens to the filter");
  way_ = UniqueFd(ends[0]);
  const UniqueFd other(ends[1]);
  pid_ = fork();
  if (pid_ == 0) run_listener(listener.get(), other.get(), plan_, policy_, host_);
  if (pid_ < 0) return sys_failure(errno, "start who listens to the filter");
  return {};
}

std::optional<Denials> DenialWatch::collect() {
  if (pid_ <= 0) return std::nullopt;
  shutdown(way_.get(), SHUT_WR);
  const Denials denials = parse(read_all(way_.get()));
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
  way_.reset();
  return denials;
}

}  // namespace belljar::launcher
