// Tests of arguments against a second, slower reading of what they mean.
#include "launcher/seccomp/segment.hpp"

#include <doctest/doctest.h>

#include <random>

#include "launcher/seccomp/compile.hpp"
#include "tests/unit/seccomp/support.hpp"

namespace belljar::test {

namespace {

using launcher::CallVerdict;
using launcher::make_segment;
using policy::ArgumentTest;
using policy::Compare;

constexpr std::uint64_t kLow = 0xFFFFFFFF;

bool compare(std::uint64_t value, Compare comparison, std::uint64_t with) {
  switch (comparison) {
    case Compare::kEqual:
      return value == with;
    case Compare::kNotEqual:
      return value != with;
    case Compare::kLess:
      return value < with;
    case Compare::kLessOrEqual:
      return value <= with;
    case Compare::kGreater:
      return value > with;
    case Compare::kGreaterOrEqual:
      return value >= with;
  }
  return false;
}

// As an int and as a whole; where an order differs, the answer that leads to the stricter verdict.
bool holds(const ArgumentTest& test, std::uint64_t argument, bool refusing) {
  const std::uint64_t masked = argument & test.mask.value_or(~std::uint64_t{0});
  const bool as_whole = compare(masked, test.compare, test.value);
  const bool as_int = compare(masked & kLow, test.compare, test.value);
  if (test.value > kLow || test.mask.value_or(0) > kLow) return as_whole;
  if (test.compare == Compare::kEqual || test.compare == Compare::kNotEqual) return as_int;
  return refusing ? as_int || as_whole : as_int && as_whole;
}

int severity(SeccompAction action) { return static_cast<int>(action.kind); }

SeccompAction expected(const CallVerdict& verdict, const seccomp_data& data) {
  for (const CallVerdict::Clause& clause : verdict.clauses) {
    const bool refusing = severity(clause.action) >= severity(verdict.otherwise);
    if (clause.when.empty()) return clause.action;
    for (const auto& alternative : clause.when) {
      bool all = true;
      for (const ArgumentTest& test : alternative)
        all = all && holds(test, data.args[test.argument], refusing);
      if (all) return clause.action;
    }
  }
  return verdict.otherwise;
}

class Random {
 public:
  std::uint64_t below(std::uint64_t limit) { return engine_() % limit; }

  // Few different values in each half, so that equality and its neighbours happen.
  std::uint64_t argument() {
    static constexpr std::uint64_t kHalves[] = {0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, kLow - 1, kLow};
    const std::uint64_t upper = below(2) == 0 ? 0 : kHalves[below(8)];
    return upper << 32 | kHalves[below(8)];
  }

  SeccompAction action() {
    const std::uint64_t kind = below(4);
    if (kind == 0) return {Kind::kAllow, 0};
    if (kind == 3) return {Kind::kLog, 0};
    if (kind == 1) return {Kind::kKill, 0};
    return {Kind::kErrno, static_cast<int>(1 + below(3))};
  }

  ArgumentTest test(unsigned number) {
    ArgumentTest test;
    test.argument = number;
    test.compare = static_cast<Compare>(below(6));
    test.value = argument();
    const bool equality = test.compare == Compare::kEqual || test.compare == Compare::kNotEqual;
    if (equality && below(2) == 0) {
      test.mask = argument();
      test.value &= *test.mask;
    }
    return test;
  }

  CallVerdict plain_verdict() { return {{}, action()}; }

  CallVerdict verdict() {
    CallVerdict verdict;
    verdict.otherwise = action();
    for (std::uint64_t clauses = below(4); clauses > 0; --clauses) {
      CallVerdict::Clause& clause = verdict.clauses.emplace_back();
      clause.action = action();
      for (std::uint64_t count = below(4); count > 0; --count) {
        auto& alternative = clause.when.emplace_back();
        for (unsigned number = 0; number < 6; ++number)
          if (below(3) == 0) alternative.push_back(test(number));
      }
    }
    return verdict;
  }

 private:
  std::mt19937_64 engine_{20240601};
};

CallVerdict when(ArgumentTest test) {
  return {{{{Kind::kErrno, EPERM}, {{test}}}}, {Kind::kAllow, 0}};
}

std::string reason(const CallVerdict& verdict) {
  const auto segment = make_segment(verdict);
  return segment ? "accepted" : segment.error().what;
}

std::string decide(const CallVerdict& verdict, std::uint64_t argument) {
  return run(make_segment(verdict).value(), 0, {argument});
}

}  // namespace

TEST_CASE("any verdict decides as the definition of its tests says") {
  Random random;
  for (int round = 0; round < 4000; ++round) {
    const CallVerdict verdict = random.verdict();
    const auto segment = make_segment(verdict).value();
    for (int call = 0; call < 100; ++call) {
      seccomp_data data = make_data(kNative, 0);
      for (auto& argument : data.args) argument = random.argument();
      const auto evaluation = evaluate(segment, data);
      REQUIRE(evaluation.has_value());
      REQUIRE(evaluation->value == launcher::return_value(expected(verdict, data)));
    }
  }
}

TEST_CASE("any set of verdicts decides every number as its verdict says") {
  Random random;
  for (int round = 0; round < 60; ++round) {
    launcher::Verdicts verdicts;
    verdicts.default_action = random.action();
    // Every number in the first round, so that jumps have far to go; none in the second.
    for (std::uint64_t count = round == 0   ? 600
                               : round == 1 ? 0
                                            : random.below(400);
         count > 0; --count) {
      const int number = static_cast<int>(round == 0 ? count - 1 : random.below(600));
      // One in eight by its arguments: more would not fit into 4096 instructions.
      verdicts.calls[number] = random.below(8) == 0 ? random.verdict() : random.plain_verdict();
    }
    const auto compiled = launcher::compile_filter(verdicts);
    REQUIRE(compiled.has_value());
    for (int call = 0; call < 3000; ++call) {
      seccomp_data data = make_data(kNative, call % 601);
      for (auto& argument : data.args) argument = random.argument();
      const auto found = verdicts.calls.find(data.nr);
      const SeccompAction action =
          found == verdicts.calls.end() ? verdicts.default_action : expected(found->second, data);
      REQUIRE(evaluate(compiled->instructions, data).value().value ==
              launcher::return_value(action));
    }
  }
}

TEST_CASE("equality ignores what the kernel ignores of an int") {
  const CallVerdict equal = when({0, Compare::kEqual, {}, 5});
  CHECK(decide(equal, 5) == "EPERM");
  CHECK(decide(equal, kGarbage | 5) == "EPERM");
  CHECK(decide(equal, 6) == "allow");
  const CallVerdict different = when({0, Compare::kNotEqual, {}, kLow});
  CHECK(decide(different, ~std::uint64_t{0}) == "allow");
  CHECK(decide(different, 0) == "EPERM");
}

TEST_CASE("an upper half never makes an order less strict") {
  const CallVerdict refuse_more = when({0, Compare::kGreater, {}, 4});
  CHECK(decide(refuse_more, 4) == "allow");
  CHECK(decide(refuse_more, kGarbage | 5) == "EPERM");
  CHECK(decide(refuse_more, kGarbage) == "EPERM");
  CallVerdict allow_less = when({0, Compare::kLess, {}, 4});
  std::swap(allow_less.clauses[0].action, allow_less.otherwise);
  CHECK(decide(allow_less, 3) == "allow");
  CHECK(decide(allow_less, kGarbage | 3) == "EPERM");
}

TEST_CASE("values past 32 bits compare the whole argument") {
  const CallVerdict large = when({0, Compare::kEqual, {}, 0x1'00000005});
  CHECK(decide(large, 0x1'00000005) == "EPERM");
  CHECK(decide(large, 5) == "allow");
  CHECK(decide(large, 0x2'00000005) == "allow");
}

TEST_CASE("an alternative that tests all six arguments stays within reach of its jumps") {
  CallVerdict verdict = when({0, Compare::kEqual, {}, 0});
  auto& alternative = verdict.clauses[0].when[0];
  alternative.clear();
  for (unsigned number = 0; number < 6; ++number)
    alternative.push_back({number, Compare::kGreater, {}, 0x1'00000000});
  const auto segment = make_segment(verdict).value();
  const std::uint64_t high = 0x2'00000000;
  CHECK(run(segment, 0, {high, high, high, high, high, high}) == "EPERM");
  CHECK(run(segment, 0, {0, high, high, high, high, high}) == "allow");
  CHECK(run(segment, 0, {high, high, high, high, high, 0}) == "allow");
}

TEST_CASE("tests that cannot be meant are refused") {
  CHECK(reason(when({6, Compare::kEqual, {}, 0})) ==
        "argument 6 does not exist: they are numbered 0 to 5");
  CHECK(reason(when({1, Compare::kLess, 7, 0})) == "argument 1: a mask goes with equality only");
  CHECK(reason(when({1, Compare::kEqual, 7, 8})) ==
        "argument 1: the value has bits outside the mask, so it is never equal");
  CallVerdict twice = when({2, Compare::kGreater, {}, 0});
  twice.clauses[0].when[0].push_back({2, Compare::kLess, {}, 9});
  CHECK(reason(twice) == "argument 2 is tested twice in one alternative");
}

TEST_CASE("an error number that the kernel would not return is refused") {
  CHECK(reason({{}, {Kind::kErrno, 0}}) == "error number 0 is not in 1..4095");
  CHECK(reason({{}, {Kind::kErrno, 4096}}) == "error number 4096 is not in 1..4095");
  CHECK(reason({{}, {Kind::kErrno, 4095}}) == "accepted");
}

}  // namespace belljar::test
