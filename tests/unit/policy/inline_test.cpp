// Policies that come with requests.
#include <doctest/doctest.h>

#include "policy/inline_policy.hpp"
#include "tests/unit/policy/loading.hpp"

using namespace belljar::policy;
using belljar::policy::testing::policy_text;

namespace {

std::string errors_of(std::string_view text,
                      const std::map<std::string, std::string>& variables = {}) {
  const auto read = read_inline_policy(text, variables);
  if (read) return {};
  std::string out;
  for (const Diagnostic& one : read.error()) out += (out.empty() ? "" : "\n") + one.text();
  return out;
}

}  // namespace

TEST_CASE("what a session is made of is not for a policy of a request to say") {
  for (const char* kept :
       {"identity", "namespaces", "capabilities", "io", "final", "report", "tests"}) {
    CHECK(is_kept_from_requests({kept}));
    CHECK(is_kept_from_requests({kept, "x"}));
    const std::string said = errors_of(policy_text("\"" + std::string(kept) + "\":null"));
    CHECK_MESSAGE(said.starts_with("inline:1:14: " + std::string(kept) +
                                   ": is the operator's to say, not a request's; leave it out"),
                  said);
    // Once, whatever it holds.
    const std::string full = errors_of(policy_text("\"" + std::string(kept) + R"(":{"uid":5})"));
    CHECK_MESSAGE(full.find("leave it out") == full.rfind("leave it out"), full);
  }
  CHECK(is_kept_from_requests({"filesystem", "workspace"}));
  CHECK(is_kept_from_requests({"filesystem", "workspace", "path"}));
  CHECK_FALSE(is_kept_from_requests({"filesystem"}));
  CHECK_FALSE(is_kept_from_requests({"filesystem", "mounts", "workspace"}));
  CHECK_FALSE(is_kept_from_requests({"limits", "identity"}));
  CHECK_FALSE(is_kept_from_requests({}));
}

TEST_CASE("all that is wrong with a policy of a request is told in the order of its text") {
  CHECK(errors_of("{\"version\":1,\n\"limit\":{},\n\"io\":{},\n\"limits\":{\"memory\":5}}") ==
        "inline:2:1: limit: unknown key; did you mean \"limits\"?\n"
        "inline:3:1: io: is the operator's to say, not a request's; leave it out\n"
        "inline:4:20: limits.memory: expected a size such as \"512MiB\", got the number 5; "
        "write \"5B\" if bytes are meant");
  CHECK(errors_of(std::string(kLargestInline + 1, ' ')).find("24576 at most") != std::string::npos);
  CHECK(errors_of(policy_text(R"("extends":["/etc/passwd"])")).find("extends[0]") !=
        std::string::npos);
}

TEST_CASE("a policy of a request is known by no name of its own, and by what its text says") {
  const auto read = read_inline_policy(
      policy_text(R"("name":"site","extends":["builtin:agent@1"],"vars":{"n":{"type":"int"}},)"
                  R"("limits":{"rlimits":{"nofile":"${n}","as":null},"output":null})"),
      {{"n", "7"}});
  REQUIRE(read.has_value());
  CHECK(read->policy.name == "inline");
  CHECK(read->policy.limits.rlimits.at("nofile").value == 7);
  CHECK(read->says("limits.rlimits.nofile"));
  CHECK(read->says("limits.rlimits.as"));
  CHECK(read->says("limits.output"));
  CHECK_FALSE(read->says("limits.rlimits.cpu"));
  CHECK_FALSE(read->says("network.mode"));
  const auto none = read_inline_policy(policy_text(R"("limits":null)"), {});
  REQUIRE(none.has_value());
  CHECK(none->says("limits.rlimits.cpu"));
}
