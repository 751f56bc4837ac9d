// Verdicts on system calls.
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "loading.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_in;
using testing::first_message;
using testing::load_body;

std::string rule_text(std::string_view rule) {
  return "\"syscalls\":{\"rules\":{\"socket\":" + std::string(rule) + "}}";
}

SyscallRule rule_of(std::string_view rule) {
  return load_body(rule_text(rule)).syscalls.rules.at("socket");
}

std::string rule_error(std::string_view rule) { return first_message(rule_text(rule)); }

/// A rule with one comparison.
std::string test_rule(std::string_view test) {
  return R"({"action":"allow","when":[{"arg0":)" + std::string(test) + R"(}],"otherwise":"EPERM"})";
}

TEST_CASE("actions are allow, kill, or any errno by name") {
  CHECK(rule_of(R"("allow")").action.kind == SyscallAction::Kind::kAllow);
  CHECK(rule_of(R"("kill")").action.kind == SyscallAction::Kind::kKill);
  const SyscallAction action = rule_of(R"("ENOSYS")").action;
  CHECK(action.kind == SyscallAction::Kind::kErrno);
  CHECK(action.error == ENOSYS);
  CHECK(action.error_name == "ENOSYS");
  CHECK(rule_of(R"("EWOULDBLOCK")").action.error == EAGAIN);
}

TEST_CASE("log is an action for one call and a mode for all") {
  CHECK(rule_of(R"("log")").action.kind == SyscallAction::Kind::kLog);
  CHECK(load_body(R"("name":"x")").syscalls.mode == SyscallMode::kEnforce);
  CHECK(load_body(R"("syscalls":{"mode":"log"})").syscalls.mode == SyscallMode::kLog);
  CHECK(rule_error(R"("logg")") == "unknown action \"logg\"; did you mean \"log\"?");
}

TEST_CASE("unknown actions are refused with the nearest name") {
  CHECK(rule_error(R"("EPREM")") == "unknown action \"EPREM\"; did you mean \"EPERM\"?");
  CHECK(rule_error(R"("alow")") == "unknown action \"alow\"; did you mean \"allow\"?");
  CHECK(first_message(R"("syscalls":{"default":1})") ==
        "expected \"allow\", \"log\", \"kill\" or an errno such as \"EPERM\", got the number 1");
  CHECK(contains(rule_error("5"), "expected an action such as \"EPERM\", or an object such as"));
}

TEST_CASE("base and default are read") {
  const Syscalls syscalls =
      load_body(R"("syscalls":{"base":"strict@1","default":"EPERM"})").syscalls;
  CHECK(syscalls.base == SyscallBase::kStrict1);
  CHECK(syscalls.default_action->error == EPERM);
  CHECK_FALSE(load_body(R"("syscalls":{})").syscalls.default_action.has_value());
  CHECK(contains(first_message(R"("syscalls":{"base":"agent"})"), "did you mean \"agent@1\"?"));
}

TEST_CASE("names of system calls are lower case") {
  for (const char* bad : {"", "Socket", "a-b", "a b"}) {
    CHECK(contains(errors_in("\"syscalls\":{\"rules\":{\"" + std::string(bad) + "\":\"allow\"}}"),
                   "expected the name of a system call such as \"ptrace\", got "));
  }
}

TEST_CASE("conditions compare arguments with numbers, hexadecimal text and constants") {
  const SyscallRule rule = rule_of(R"({"action":"allow","otherwise":"EPERM","when":[
      {"arg0":{"==":"AF_UNIX"},"arg1":{"mask":"0xf","==":1}},
      {"arg5":{">=":18446744073709551615}}, {"arg2":{"!=":"42"}}]})");
  REQUIRE(rule.when.size() == 3);
  REQUIRE(rule.when[0].size() == 2);
  CHECK(rule.when[0][0].value == AF_UNIX);
  CHECK(rule.when[0][1].argument == 1U);
  CHECK(rule.when[0][1].mask == 15U);
  CHECK(rule.when[1][0].argument == 5U);
  CHECK(rule.when[1][0].compare == Compare::kGreaterOrEqual);
  CHECK(rule.when[1][0].value == 18446744073709551615U);
  CHECK(rule.when[2][0].value == 42U);
  CHECK(rule.otherwise.error == EPERM);
}

TEST_CASE("a comparison has exactly one operator") {
  CHECK(rule_error(test_rule("{}")) == "exactly one of ==, !=, <, <=, > and >= is needed");
  CHECK(rule_error(test_rule(R"({"==":1,"!=":2})")) ==
        "exactly one of ==, !=, <, <=, > and >= is needed");
  CHECK(rule_error(test_rule(R"({"mask":1})")) ==
        "exactly one of ==, !=, <, <=, > and >= is needed");
  CHECK(rule_error(test_rule(R"({"mask":1,"<":1})")) ==
        "\"mask\" goes with \"==\" and \"!=\" only");
  CHECK(rule_error(test_rule(R"({"mask":1,"!=":2})")) ==
        "always holds: the value has bits that the mask takes away");
  CHECK(rule_of(test_rule(R"({"mask":"CLONE_NEWUSER","!=":0})")).when[0][0].compare ==
        Compare::kNotEqual);
  CHECK(contains(rule_error(test_rule(R"({"in":1})")), "unknown key"));
  CHECK(rule_error(test_rule("5")) ==
        "expected a comparison such as {\"==\": \"AF_UNIX\"}, got the number 5");
}

TEST_CASE("a comparison that cannot hold is refused") {
  CHECK(rule_error(test_rule(R"({"mask":1,"==":2})")) ==
        "never holds: the value has bits that the mask takes away");
}

TEST_CASE("values that are no number are refused") {
  CHECK(errors_in(rule_text(test_rule(R"({"==":"AF_UNX"})"))) ==
        "p.json:1:84: syscalls.rules.socket.when[0].arg0[\"==\"]: unknown constant \"AF_UNX\"; did "
        "you mean \"AF_UNIX\"?");
  for (const char* bad : {"-1", "1.5", "\"\"", "\"0x\"", "\"-1\"", "\"0x1ffffffffffffffff\"",
                          "\"18446744073709551616\"", "null", "true"}) {
    CHECK(contains(rule_error(test_rule("{\"==\":" + std::string(bad) + "}")),
                   "expected a whole number of at least 0, \"0x...\", or a constant"));
  }
}

TEST_CASE("alternatives are not empty") {
  CHECK(contains(rule_error(R"({"action":"allow","when":[],"otherwise":"EPERM"})"),
                 "no alternatives"));
  CHECK(rule_error(R"({"action":"allow","when":[{}],"otherwise":"EPERM"})") ==
        "an alternative without a comparison would always hold");
  CHECK(contains(rule_error(R"({"action":"allow","when":{},"otherwise":"EPERM"})"),
                 "expected an array such as [{\"arg0\": {\"==\": \"AF_UNIX\"}}], got an object"));
  CHECK(contains(rule_error(R"({"action":"allow","when":[{"arg6":{"==":1}}],"otherwise":"kill"})"),
                 "unknown key; did you mean \"arg0\"?"));
}

TEST_CASE("when and otherwise need each other, and a difference") {
  CHECK(rule_error(R"({"action":"allow","when":[{"arg0":{"==":1}}]})") ==
        "\"otherwise\" is required beside \"when\"");
  CHECK(rule_error(R"({"action":"allow","otherwise":"EPERM"})") ==
        "means nothing without \"when\"");
  CHECK(rule_error(R"({"action":"EPERM","when":[{"arg0":{"==":1}}],"otherwise":"EPERM"})") ==
        "is the same as \"action\"");
  CHECK(rule_error("{}") == "\"action\" is required");
}

}  // namespace
}  // namespace belljar::policy
