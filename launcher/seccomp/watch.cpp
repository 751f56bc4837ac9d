#include "launcher/seccomp/watch.hpp"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include "launcher/seccomp/names.hpp"

namespace belljar::launcher {
namespace {

constexpr auto kWatched = std::to_array<WatchedCall>({
    {.name = "open", .shape = CallShape::kOpen, .more = 1},
    {.name = "openat", .shape = CallShape::kOpen, .directory = 0, .path = 1, .more = 2},
    {.name = "openat2", .shape = CallShape::kOpenHow, .directory = 0, .path = 1, .more = 2},
    {.name = "creat", .shape = CallShape::kCreate},
    {.name = "execve", .shape = CallShape::kExec},
    {.name = "execveat", .shape = CallShape::kExec, .directory = 0, .path = 1, .empty_path = 4},
    {.name = "stat", .shape = CallShape::kLook},
    {.name = "lstat", .shape = CallShape::kLook},
    {.name = "newfstatat", .shape = CallShape::kLook, .directory = 0, .path = 1, .empty_path = 3},
    {.name = "statx", .shape = CallShape::kLook, .directory = 0, .path = 1, .empty_path = 2},
    {.name = "chdir", .shape = CallShape::kLook},
    {.name = "access", .shape = CallShape::kAccess, .more = 1},
    {.name = "faccessat", .shape = CallShape::kAccess, .directory = 0, .path = 1, .more = 2},
    {.name = "faccessat2",
     .shape = CallShape::kAccess,
     .directory = 0,
     .path = 1,
     .more = 2,
     .empty_path = 3},
    {.name = "mkdir", .shape = CallShape::kMake},
    {.name = "mkdirat", .shape = CallShape::kMake, .directory = 0, .path = 1},
    {.name = "mknod", .shape = CallShape::kMake},
    {.name = "mknodat", .shape = CallShape::kMake, .directory = 0, .path = 1},
    {.name = "symlink", .shape = CallShape::kMake, .path = 1},
    {.name = "symlinkat", .shape = CallShape::kMake, .directory = 1, .path = 2},
    {.name = "link", .shape = CallShape::kMake, .path = 1},
    {.name = "linkat", .shape = CallShape::kMake, .directory = 2, .path = 3},
    {.name = "unlink", .shape = CallShape::kRemove},
    {.name = "rmdir", .shape = CallShape::kRemove},
    {.name = "unlinkat", .shape = CallShape::kRemove, .directory = 0, .path = 1},
    {.name = "rename", .shape = CallShape::kRemove, .other_path = 1},
    {.name = "renameat",
     .shape = CallShape::kRemove,
     .directory = 0,
     .path = 1,
     .other_directory = 2,
     .other_path = 3},
    {.name = "renameat2",
     .shape = CallShape::kRemove,
     .directory = 0,
     .path = 1,
     .other_directory = 2,
     .other_path = 3},
    {.name = "truncate", .shape = CallShape::kChange},
    {.name = "chmod", .shape = CallShape::kChange},
    {.name = "fchmodat", .shape = CallShape::kChange, .directory = 0, .path = 1},
    {.name = "connect", .shape = CallShape::kConnect, .path = 1},
    {.name = "bind", .shape = CallShape::kBind, .path = 1},
});

/// What a copy returns instead of what the policy's filter does.
struct Substitutes {
  std::uint32_t allowed;
  bool errors_notify;
};

class Writer {
 public:
  explicit Writer(std::span<const sock_filter> judged) : judged_(judged.begin(), judged.end()) {
    constexpr sock_filter kAllowAll{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    if (judged_.empty()) judged_.push_back(kAllowAll);
  }

  std::vector<sock_filter> write() {
    load(offsetof(seccomp_data, arch));
    code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, 1, 0, kNativeArchitecture});
    jump(kUnwatched);
    load(offsetof(seccomp_data, nr));
    write_listener_test();
    for (const WatchedCall& call : kWatched)
      if (const Result<int> number = resolve_syscall(call.name)) write_test(*number, call);
    jump(kUnwatched);
    copy(kUnwatched, {SECCOMP_RET_ALLOW, true});
    copy(kWatchedCopy, {SECCOMP_RET_USER_NOTIF, true});
    copy(kListener, {SECCOMP_RET_ERRNO | EBUSY, false});
    for (const Jump& jump : jumps_)
      code_[jump.at].k = static_cast<std::uint32_t>(starts_[jump.to] - jump.at - 1);
    return std::move(code_);
  }

 private:
  enum Copy : std::size_t { kUnwatched, kWatchedCopy, kListener, kCopies };
  struct Jump {
    std::size_t at;
    Copy to;
  };

  void load(std::size_t offset) {
    code_.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset)});
  }
  void load_argument(int index) {
    load(offsetof(seccomp_data, args) + std::size_t{8} * static_cast<std::size_t>(index));
  }
  void jump(Copy to) {
    jumps_.push_back({code_.size(), to});
    code_.push_back({BPF_JMP | BPF_JA, 0, 0, 0});
  }

  /// Of what follows, `count` instructions are for this number only.
  void only_for(int number, std::uint8_t count) {
    code_.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, count, static_cast<std::uint32_t>(number)});
  }

  void write_listener_test() {
    only_for(SYS_seccomp, 4);
    load_argument(1);
    code_.push_back({BPF_JMP | BPF_JSET | BPF_K, 0, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER});
    jump(kListener);
    jump(kUnwatched);
  }

  void write_test(int number, const WatchedCall& call) {
    if (call.empty_path < 0) {
      only_for(number, 1);
      return jump(kWatchedCopy);
    }
    only_for(number, 4);
    load_argument(call.empty_path);
    code_.push_back({BPF_JMP | BPF_JSET | BPF_K, 0, 1, AT_EMPTY_PATH});
    jump(kUnwatched);
    jump(kWatchedCopy);
  }

  void copy(Copy which, Substitutes substitutes) {
    starts_[which] = code_.size();
    for (sock_filter instruction : judged_) {
      const std::uint32_t action = instruction.k & SECCOMP_RET_ACTION_FULL;
      if (instruction.code == (BPF_RET | BPF_K)) {
        if (action == SECCOMP_RET_ALLOW) instruction.k = substitutes.allowed;
        if (action == SECCOMP_RET_LOG && which == kListener) instruction.k = substitutes.allowed;
        if (action == SECCOMP_RET_ERRNO && substitutes.errors_notify)
          instruction.k = SECCOMP_RET_USER_NOTIF;
      }
      code_.push_back(instruction);
    }
  }

  std::vector<sock_filter> judged_;
  std::vector<sock_filter> code_;
  std::vector<Jump> jumps_;
  std::array<std::size_t, kCopies> starts_{};
};

}  // namespace

std::span<const WatchedCall> watched_calls() { return kWatched; }

Result<SeccompFilter> watching_filter(std::span<const sock_filter> judged) {
  SeccompProgram program{Writer(judged).write()};
  if (program.instructions.size() > BPF_MAXINSNS)
    return fail({ErrorKind::kInvalid, 0,
                 "the policy's filter of " + std::to_string(judged.size()) +
                     " instructions is too long for --explain-denials, which needs three of it",
                 "syscalls", "explain with fewer rules"});
  return SeccompFilter(std::move(program));
}

}  // namespace belljar::launcher
