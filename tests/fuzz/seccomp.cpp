// Random verdicts become a filter, and an interpreter asks it about random calls: it must say what
// a plain reading of the verdicts says, for other architectures and x32 too.
#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <vector>

#include "launcher/seccomp/base.hpp"
#include "launcher/seccomp/compile.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/unit/seccomp/bpf_evaluator.hpp"

namespace {

using namespace belljar::launcher;
using belljar::fuzz::Bytes;
using belljar::policy::ArgumentTest;
using belljar::policy::Compare;
using Kind = belljar::policy::SyscallAction::Kind;

constexpr std::uint64_t kLow = 0xFFFFFFFF;
constexpr std::uint32_t kNative = kNativeArchitecture;

SeccompAction any_action(Bytes& bytes) {
  switch (bytes.pick(4)) {
    case 0:
      return {Kind::kAllow, 0};
    case 1:
      return {Kind::kLog, 0};
    case 2:
      return {Kind::kKill, 0};
    default:
      return {Kind::kErrno, 1 + static_cast<int>(bytes.number<std::uint16_t>() % 4095)};
  }
}

/// Small, at the border between the halves, or any.
std::uint64_t any_value(Bytes& bytes) {
  switch (bytes.pick(4)) {
    case 0:
      return bytes.byte();
    case 1:
      return kLow - bytes.pick(2);
    case 2:
      return kLow + 1 + bytes.pick(4);
    default:
      return bytes.number<std::uint64_t>();
  }
}

std::vector<ArgumentTest> any_alternative(Bytes& bytes) {
  std::vector<ArgumentTest> tests;
  const unsigned which = bytes.byte();
  for (unsigned argument = 0; argument < 6; ++argument) {
    if ((which >> argument & 1) == 0) continue;
    ArgumentTest test;
    test.argument = argument;
    test.compare = static_cast<Compare>(bytes.pick(6));
    test.value = any_value(bytes);
    const bool equality = test.compare == Compare::kEqual || test.compare == Compare::kNotEqual;
    if (equality && bytes.pick(2) == 1) test.mask = any_value(bytes) | test.value;
    tests.push_back(test);
  }
  return tests;
}

Verdicts any_verdicts(Bytes& bytes) {
  Verdicts verdicts;
  // The built-in sets take libseccomp its time, so not always.
  const std::size_t base = bytes.pick(32);
  if (base == 1) verdicts = base_verdicts(belljar::policy::SyscallBase::kAgent1);
  if (base == 2) verdicts = base_verdicts(belljar::policy::SyscallBase::kStrict1);
  verdicts.default_action = any_action(bytes);
  const std::size_t calls = bytes.pick(6);
  for (std::size_t i = 0; i < calls; ++i) {
    CallVerdict verdict;
    verdict.otherwise = any_action(bytes);
    const int number = bytes.number<std::uint16_t>() % 600;
    const std::size_t clauses = bytes.pick(3);
    for (std::size_t c = 0; c < clauses; ++c) {
      CallVerdict::Clause clause{any_action(bytes), {}};
      const std::size_t alternatives = bytes.pick(3);
      for (std::size_t a = 0; a < alternatives; ++a) clause.when.push_back(any_alternative(bytes));
      verdict.clauses.push_back(std::move(clause));
    }
    verdicts.calls.insert_or_assign(number, std::move(verdict));
  }
  return verdicts;
}

/// What segment.hpp promises: the low half where all fits in it, but for orders whose result an
/// upper half could turn to the looser side.
bool holds(const ArgumentTest& test, std::uint64_t argument, bool refusing) {
  const bool small = test.value <= kLow && test.mask.value_or(0) <= kLow;
  const bool below = test.compare == Compare::kLess || test.compare == Compare::kLessOrEqual;
  const bool above = test.compare == Compare::kGreater || test.compare == Compare::kGreaterOrEqual;
  const bool whole = !small || (below && !refusing) || (above && refusing);
  const std::uint64_t seen = whole ? argument : argument & kLow;
  const std::uint64_t masked = seen & test.mask.value_or(~std::uint64_t{0});
  switch (test.compare) {
    case Compare::kEqual:
      return masked == test.value;
    case Compare::kNotEqual:
      return masked != test.value;
    case Compare::kLess:
      return seen < test.value;
    case Compare::kLessOrEqual:
      return seen <= test.value;
    case Compare::kGreater:
      return seen > test.value;
    case Compare::kGreaterOrEqual:
      return seen >= test.value;
  }
  return false;
}

bool holds(const CallVerdict::Clause& clause, const seccomp_data& data, bool refusing) {
  for (const auto& alternative : clause.when) {
    bool all = true;
    for (const ArgumentTest& test : alternative)
      all = all && holds(test, data.args[test.argument], refusing);
    if (all) return true;
  }
  return clause.when.empty();
}

std::uint32_t value_of(SeccompAction action) {
  switch (action.kind) {
    case Kind::kAllow:
      return SECCOMP_RET_ALLOW;
    case Kind::kLog:
      return SECCOMP_RET_LOG;
    case Kind::kErrno:
      return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(action.error);
    case Kind::kKill:
      break;
  }
  return SECCOMP_RET_KILL_PROCESS;
}

std::uint32_t expected(const Verdicts& verdicts, const seccomp_data& data) {
  if (data.arch != kNative) return SECCOMP_RET_KILL_PROCESS;
#ifdef __x86_64__
  if (static_cast<std::uint32_t>(data.nr) >= 0x40000000) return SECCOMP_RET_ERRNO | ENOSYS;
#endif
  const auto call = verdicts.calls.find(data.nr);
  if (call == verdicts.calls.end()) return value_of(verdicts.default_action);
  for (const CallVerdict::Clause& clause : call->second.clauses) {
    const bool refusing =
        static_cast<int>(clause.action.kind) >= static_cast<int>(call->second.otherwise.kind);
    if (holds(clause, data, refusing)) return value_of(clause.action);
  }
  return value_of(call->second.otherwise);
}

/// Mostly calls that have a verdict of their own, with arguments near the values that it tests.
seccomp_data any_call(Bytes& bytes, const Verdicts& verdicts) {
  seccomp_data data{};
  constexpr std::uint32_t kArchitectures[] = {AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_AARCH64,
                                              AUDIT_ARCH_X86_64};
  data.arch = bytes.pick(8) == 0 ? kArchitectures[bytes.pick(4)] : kNative;
  data.nr = bytes.number<std::uint16_t>() % 700;
  if (!verdicts.calls.empty() && bytes.pick(4) != 0) {
    auto call = verdicts.calls.begin();
    std::advance(call, static_cast<std::ptrdiff_t>(bytes.byte() % verdicts.calls.size()));
    data.nr = call->first;
  }
  if (bytes.pick(16) == 0) data.nr |= 0x40000000;
  if (bytes.pick(16) == 0) data.nr = bytes.number<std::int32_t>();
  for (auto& argument : data.args) argument = any_value(bytes);
  const auto call = verdicts.calls.find(data.nr);
  if (call == verdicts.calls.end() || bytes.pick(4) == 0) return data;
  for (const auto& clause : call->second.clauses)
    for (const auto& alternative : clause.when)
      for (const ArgumentTest& test : alternative)
        if (bytes.pick(3) != 0) data.args[test.argument] = test.value + bytes.pick(3) - 1;
  return data;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const Verdicts verdicts = any_verdicts(bytes);
  const auto program = compile_filter(verdicts);
  FUZZ_CHECK(program.has_value(), program ? "" : program.error().what);
  for (int calls = 0; calls < 200 && (calls < 20 || !bytes.empty()); ++calls) {
    const seccomp_data call = any_call(bytes, verdicts);
    const auto end = belljar::test::evaluate(program->instructions, call);
    FUZZ_CHECK(end.has_value());
    FUZZ_CHECK(end->value == expected(verdicts, call),
               "number " + std::to_string(call.nr) + " architecture " + std::to_string(call.arch));
  }
  return 0;
}
