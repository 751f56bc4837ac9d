// Runs of numbers with one verdict, found by a binary search whose leaves are shared:
//
//   architecture?  →  number below 186? → below 92? → …  →  return | return | segment of ioctl | …
//
// Why not libseccomp's tree: it has a leaf for each number, 600 instructions where these are 240,
// and the kernel checks, converts and compiles them for every launch and every command of a
// session; making it takes libseccomp milliseconds, which policies with rules of their own would
// pay; and it cannot say "refuse these arguments, allow the rest" beside a default that refuses.
#include "launcher/seccomp/compile.hpp"

#include <linux/seccomp.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace belljar::launcher {

namespace {

// The segments, each once: chmod and fchmod share theirs.
class Segments {
 public:
  /// The index of `code`, which is added when there is no equal one.
  std::size_t add(std::vector<sock_filter> code) {
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [&](const auto& other) { return equal(code, other); });
    if (found != all_.end()) return static_cast<std::size_t>(found - all_.begin());
    all_.push_back(std::move(code));
    return all_.size() - 1;
  }

  [[nodiscard]] const std::vector<std::vector<sock_filter>>& all() const { return all_; }

 private:
  static bool equal(const std::vector<sock_filter>& a, const std::vector<sock_filter>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
  }

  std::vector<std::vector<sock_filter>> all_;
};

/// The verdict of all numbers from `first` up to the next run's.
struct Run {
  std::uint32_t first;
  std::size_t segment;
};

void append_run(std::vector<Run>& runs, std::uint32_t first, std::size_t segment) {
  if (runs.empty() || runs.back().segment != segment) runs.push_back({first, segment});
}

/// All numbers in their order, gaps filled with the default.
Result<std::vector<Run>> make_runs(const Verdicts& verdicts, Segments& segments) {
  constexpr std::uint32_t kX32Bit = 0x40000000;  // __X32_SYSCALL_BIT: same architecture, other ABI.
  const std::size_t otherwise =
      segments.add(BELLJAR_TRY(make_segment({{}, verdicts.default_action})));
  std::vector<Run> runs;
  std::uint32_t next = 0;
  for (const auto& [number, verdict] : verdicts.calls) {
    const auto at = static_cast<std::uint32_t>(number);
    if (at >= kX32Bit) return sys_failure(EINVAL, "system call number " + std::to_string(number));
    if (at > next) append_run(runs, next, otherwise);
    append_run(runs, at, segments.add(BELLJAR_TRY(make_segment(verdict))));
    next = at + 1;
  }
  append_run(runs, next, otherwise);
#ifdef __x86_64__
  // It does not kill: programs probe for it with a call.
  const SeccompAction unknown{policy::SyscallAction::Kind::kErrno, ENOSYS};
  append_run(runs, kX32Bit, segments.add(BELLJAR_TRY(make_segment({{}, unknown}))));
#endif
  return runs;
}

/// Writes a program from its end to its beginning, since jumps lead forwards only: what they lead
/// to is known when they are written. A place is a distance from the program's end.
class Backwards {
 public:
  explicit Backwards(const Segments& segments) : segments_(segments.all()) {
    for (const auto& segment : segments_) {
      code_.insert(code_.end(), segment.rbegin(), segment.rend());
      places_.push_back(code_.size() - 1);
    }
  }

  /// The search among `runs`, which are not empty; returns the place of its first instruction.
  std::size_t search(std::span<const Run> runs) {
    if (runs.size() == 1) return leaf(runs.front().segment);
    const std::size_t half = runs.size() / 2;
    const std::size_t upper = search(runs.subspan(half));
    const std::size_t lower = near(search(runs.first(half)));
    const std::size_t upper_near = near(upper);
    return push(
        {BPF_JMP | BPF_JGE | BPF_K, distance(upper_near), distance(lower), runs[half].first});
  }

  /// What comes before the search that starts at `start`, and all of it in the kernel's order.
  std::vector<sock_filter> finish(std::size_t start) {
    if (start != code_.size() - 1) push(jump_to(start));
    push({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)});
    push({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS});
    push({BPF_JMP | BPF_JEQ | BPF_K, 1, 0, kNativeArchitecture});
    push({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, arch)});
    return {code_.rbegin(), code_.rend()};
  }

 private:
  static constexpr std::size_t kReach = 255;  // A conditional jump's distance is a byte.

  std::size_t push(sock_filter instruction) {
    code_.push_back(instruction);
    return code_.size() - 1;
  }

  /// From the next instruction.
  [[nodiscard]] std::uint8_t distance(std::size_t place) const {
    return static_cast<std::uint8_t>(code_.size() - place - 1);
  }

  [[nodiscard]] sock_filter jump_to(std::size_t place) const {
    return {BPF_JMP | BPF_JA, 0, 0, static_cast<std::uint32_t>(code_.size() - place - 1)};
  }

  /// `place`, or a jump to it, that a conditional jump reaches even after one more instruction.
  std::size_t near(std::size_t place) {
    return code_.size() - place <= kReach ? place : push(jump_to(place));
  }

  /// A verdict that is one instruction is repeated where a jump to it would be needed.
  std::size_t leaf(std::size_t segment) {
    std::size_t& place = places_[segment];
    if (code_.size() - place > kReach && segments_[segment].size() == 1)
      place = push(segments_[segment].front());
    return place;
  }

  const std::vector<std::vector<sock_filter>>& segments_;
  std::vector<std::size_t> places_;  ///< Of each segment, the last one where it is repeated.
  std::vector<sock_filter> code_;
};

tl::unexpected<Error> invalid(std::string what, std::string remedy) {
  return fail({ErrorKind::kInvalid, 0, std::move(what), {}, std::move(remedy)});
}

bool known_value(std::uint32_t value) {
  const std::uint32_t action = value & SECCOMP_RET_ACTION_FULL;
  return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG || action == SECCOMP_RET_ERRNO ||
         action == SECCOMP_RET_KILL_PROCESS;
}

// What is wrong with the instruction, `rest` others following it, or null.
const char* fault(const sock_filter& instruction, std::size_t rest) {
  switch (instruction.code) {
    case BPF_LD | BPF_W | BPF_ABS:
      if (instruction.k % 4 != 0 || instruction.k >= sizeof(seccomp_data)) return "load outside";
      return rest == 0 ? "last instruction does not return" : nullptr;
    case BPF_ALU | BPF_AND | BPF_K:
      return rest == 0 ? "last instruction does not return" : nullptr;
    case BPF_JMP | BPF_JA:
      return instruction.k >= rest ? "jump outside" : nullptr;
    case BPF_JMP | BPF_JEQ | BPF_K:
    case BPF_JMP | BPF_JGT | BPF_K:
    case BPF_JMP | BPF_JGE | BPF_K:
    case BPF_JMP | BPF_JSET | BPF_K:
      return std::max(instruction.jt, instruction.jf) >= rest ? "jump outside" : nullptr;
    case BPF_RET | BPF_K:
      return known_value(instruction.k) ? nullptr : "unknown verdict";
    default:
      return "unknown instruction";
  }
}

}  // namespace

Result<SeccompProgram> compile_filter(const Verdicts& verdicts) {
  Segments segments;
  const std::vector<Run> runs = BELLJAR_TRY(make_runs(verdicts, segments));
  Backwards writer(segments);
  SeccompProgram program{writer.finish(writer.search(runs))};
  BELLJAR_CHECK(validate_filter(program.instructions));
  return program;
}

Status validate_filter(std::span<const sock_filter> program) {
  if (program.empty() || program.size() > BPF_MAXINSNS)
    return invalid("filter of " + std::to_string(program.size()) + " instructions: 1 to " +
                       std::to_string(BPF_MAXINSNS) + " are possible",
                   "use fewer rules or fewer alternatives in `when`");
  for (std::size_t i = 0; i < program.size(); ++i) {
    const char* wrong = fault(program[i], program.size() - i - 1);
    if (wrong != nullptr)
      return invalid("filter instruction " + std::to_string(i) + ": " + wrong, {});
  }
  return {};
}

}  // namespace belljar::launcher
