// Why libseccomp does not write these: its comparisons read 64 bits where the kernel reads 32, and
// version 2.5.4 never returns from adding `arg1 > 2 and arg0 < 1` and `arg1 != 0 and arg0 < 1` to
// one filter (observed), so a policy could hang the launcher.
#include "launcher/seccomp/segment.hpp"

#include <linux/seccomp.h>

#include <bit>
#include <cstddef>
#include <string>

namespace belljar::launcher {

namespace {

using policy::ArgumentTest;
using policy::Compare;

static_assert(std::endian::native == std::endian::little,
              "the low half of an argument comes first");

constexpr std::uint64_t kLowHalf = 0xFFFFFFFF;
constexpr std::uint8_t kNext = 0;  ///< A jump that goes on, or that `Writer` patches later.

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

/// Appends instructions. Jumps to "this alternative does not hold" are collected and patched when
/// its end is known; conditional jumps reach 255 instructions, an alternative has 6 * 6 at most.
class Writer {
 public:
  void load(unsigned argument, bool upper) {
    const std::size_t offset =
        offsetof(seccomp_data, args) + std::size_t{8} * argument + (upper ? 4 : 0);
    code_.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset)});
  }

  void keep_bits(std::uint32_t mask) {
    if (mask != kLowHalf) code_.push_back({BPF_ALU | BPF_AND | BPF_K, 0, 0, mask});
  }

  /// Goes on when `comparison` (BPF_JEQ, BPF_JGT, BPF_JGE) with `value` is true.
  void need(std::uint16_t comparison, std::uint32_t value) {
    fails_.push_back({code_.size(), false});
    jump(comparison, value, kNext, kNext);
  }

  /// Goes on when it is false.
  void need_not(std::uint16_t comparison, std::uint32_t value) {
    fails_.push_back({code_.size(), true});
    jump(comparison, value, kNext, kNext);
  }

  /// Skips `count` instructions when it is true.
  void skip_if(std::uint16_t comparison, std::uint32_t value, std::uint8_t count) {
    jump(comparison, value, count, kNext);
  }

  /// Skips `count` instructions when it is false.
  void skip_unless(std::uint16_t comparison, std::uint32_t value, std::uint8_t count) {
    jump(comparison, value, kNext, count);
  }

  /// Ends an alternative: returns if none of its tests failed.
  void give(SeccompAction action) {
    code_.push_back({BPF_RET | BPF_K, 0, 0, return_value(action)});
    for (const Fail& test : fails_) {
      const auto distance = static_cast<std::uint8_t>(code_.size() - test.at - 1);
      (test.when_true ? code_[test.at].jt : code_[test.at].jf) = distance;
    }
    fails_.clear();
  }

  [[nodiscard]] std::vector<sock_filter> take() { return std::move(code_); }

 private:
  struct Fail {
    std::size_t at;
    bool when_true;
  };

  void jump(std::uint16_t comparison, std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
    code_.push_back({static_cast<std::uint16_t>(BPF_JMP | BPF_K | comparison), yes, no, value});
  }

  std::vector<sock_filter> code_;
  std::vector<Fail> fails_;
};

void write_low_test(Writer& writer, const ArgumentTest& test) {
  const std::uint32_t value = low(test.value);
  writer.load(test.argument, false);
  writer.keep_bits(low(test.mask.value_or(kLowHalf)));
  switch (test.compare) {
    case Compare::kEqual:
      return writer.need(BPF_JEQ, value);
    case Compare::kNotEqual:
      return writer.need_not(BPF_JEQ, value);
    case Compare::kLess:
      return writer.need_not(BPF_JGE, value);
    case Compare::kLessOrEqual:
      return writer.need_not(BPF_JGT, value);
    case Compare::kGreater:
      return writer.need(BPF_JGT, value);
    case Compare::kGreaterOrEqual:
      return writer.need(BPF_JGE, value);
  }
}

// The upper half decides unless it is equal; skips lead past the rest of the test.
void write_full_test(Writer& writer, const ArgumentTest& test) {
  const std::uint64_t mask = test.mask.value_or(~std::uint64_t{0});
  const std::uint32_t upper = high(test.value);
  const std::uint32_t lower = low(test.value);
  writer.load(test.argument, true);
  writer.keep_bits(high(mask));
  switch (test.compare) {
    case Compare::kEqual:
      writer.need(BPF_JEQ, upper);
      writer.load(test.argument, false);
      writer.keep_bits(low(mask));
      return writer.need(BPF_JEQ, lower);
    case Compare::kNotEqual:
      writer.skip_unless(BPF_JEQ, upper, low(mask) == kLowHalf ? 2 : 3);
      writer.load(test.argument, false);
      writer.keep_bits(low(mask));
      return writer.need_not(BPF_JEQ, lower);
    case Compare::kLess:
    case Compare::kLessOrEqual:
      writer.need_not(BPF_JGT, upper);
      writer.skip_unless(BPF_JEQ, upper, 2);
      writer.load(test.argument, false);
      return writer.need_not(test.compare == Compare::kLess ? BPF_JGE : BPF_JGT, lower);
    case Compare::kGreater:
    case Compare::kGreaterOrEqual:
      writer.skip_if(BPF_JGT, upper, 3);
      writer.need(BPF_JEQ, upper);
      writer.load(test.argument, false);
      return writer.need(test.compare == Compare::kGreater ? BPF_JGT : BPF_JGE, lower);
  }
}

int severity(SeccompAction action) { return static_cast<int>(action.kind); }

// Values that fit in the low half are compared there, except in an order whose result an upper half
// could turn round: "refuse above 4" must not let 2^32 pass where the kernel reads a size_t, and
// "allow below 4" neither. Read as an int, both are then refused, which is the safe mistake.
bool reads_full_argument(const ArgumentTest& test, bool refusing) {
  if (test.value > kLowHalf || test.mask.value_or(0) > kLowHalf) return true;
  switch (test.compare) {
    case Compare::kEqual:
    case Compare::kNotEqual:
      return false;
    case Compare::kLess:
    case Compare::kLessOrEqual:
      return !refusing;
    case Compare::kGreater:
    case Compare::kGreaterOrEqual:
      return refusing;
  }
  return true;
}

tl::unexpected<Error> invalid(std::string what) {
  return fail({ErrorKind::kInvalid, 0, std::move(what), {}, {}});
}

Status check_action(SeccompAction action) {
  constexpr int kMaxErrno = 4095;  // The kernel's MAX_ERRNO; 0 would be success without the call.
  if (action.kind != policy::SyscallAction::Kind::kErrno) return {};
  if (action.error >= 1 && action.error <= kMaxErrno) return {};
  return invalid("error number " + std::to_string(action.error) + " is not in 1..4095");
}

Status check_alternative(const std::vector<ArgumentTest>& alternative) {
  unsigned seen = 0;
  for (const ArgumentTest& test : alternative) {
    const std::string name = "argument " + std::to_string(test.argument);
    if (test.argument > 5) return invalid(name + " does not exist: they are numbered 0 to 5");
    if ((seen >> test.argument & 1U) != 0)
      return invalid(name + " is tested twice in one alternative");
    seen |= 1U << test.argument;
    if (!test.mask) continue;
    if (test.compare != Compare::kEqual && test.compare != Compare::kNotEqual)
      return invalid(name + ": a mask goes with equality only");
    if ((test.value & ~*test.mask) != 0)
      return invalid(name + ": the value has bits outside the mask, so it is never equal");
  }
  return {};
}

Status check_verdict(const CallVerdict& verdict) {
  BELLJAR_CHECK(check_action(verdict.otherwise));
  for (const CallVerdict::Clause& clause : verdict.clauses) {
    BELLJAR_CHECK(check_action(clause.action));
    for (const auto& alternative : clause.when) BELLJAR_CHECK(check_alternative(alternative));
  }
  return {};
}

}  // namespace

std::uint32_t return_value(SeccompAction action) {
  switch (action.kind) {
    case policy::SyscallAction::Kind::kAllow:
      return SECCOMP_RET_ALLOW;
    case policy::SyscallAction::Kind::kLog:
      return SECCOMP_RET_LOG;
    case policy::SyscallAction::Kind::kErrno:
      return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(action.error);
    case policy::SyscallAction::Kind::kKill:
      return SECCOMP_RET_KILL_PROCESS;
  }
  return SECCOMP_RET_KILL_PROCESS;
}

Result<std::vector<sock_filter>> make_segment(const CallVerdict& verdict) {
  BELLJAR_CHECK(check_verdict(verdict));
  Writer writer;
  for (const CallVerdict::Clause& clause : verdict.clauses) {
    const bool refusing = severity(clause.action) >= severity(verdict.otherwise);
    for (const auto& alternative : clause.when) {
      for (const ArgumentTest& test : alternative) {
        if (reads_full_argument(test, refusing)) {
          write_full_test(writer, test);
        } else {
          write_low_test(writer, test);
        }
      }
      writer.give(clause.action);
    }
    if (clause.when.empty()) {
      writer.give(clause.action);
      return writer.take();
    }
  }
  writer.give(verdict.otherwise);
  return writer.take();
}

}  // namespace belljar::launcher
