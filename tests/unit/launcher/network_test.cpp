// The private network's rules, and the messages that carry them, without a network.
#include <algorithm>
#include <cstring>

#include "launcher/network/netlink.hpp"
#include "launcher/network/rules.hpp"
#include "launcher/network_selftest.hpp"
#include "planning.hpp"

namespace belljar::network {
namespace {

using launcher::AttachNetwork;
using policy::Ipv4Range;

Ipv4Range range(std::string_view text) {
  const auto parsed = policy::parse_ipv4_range(text);
  REQUIRE(parsed.has_value());
  return *parsed;
}

/// As the kernel takes them: the first that matches decides.
bool reaches(const AttachNetwork& wanted, const HostAddresses& host, const char* address,
             std::uint16_t port) {
  const auto rules = rules_of(wanted, host);
  REQUIRE(rules.has_value());
  return rule_for(*rules, range(address).address, port).accept;
}

const HostAddresses kHost{{{0xc6336407, 32}, {0xcb007100, 28}}, {{0xc6336401, 32}}};

TEST_CASE("without rules of the policy's all public addresses are reached but the host's") {
  for (const char* open : {"192.0.2.1", "8.8.8.8", "198.51.100.8", "1.0.0.1", "223.255.255.255"})
    CHECK(reaches({}, kHost, open, 443));
  for (const char* shut :
       {"198.51.100.7", "203.0.113.15", "198.51.100.1", "127.0.0.1", "127.255.255.254", "0.0.0.0",
        "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.1", "10.0.0.1",
        "172.31.255.255", "192.168.0.1", "100.127.255.255", "224.0.0.1", "255.255.255.255"})
    CHECK_MESSAGE(!reaches({}, kHost, shut, 443), shut);
  CHECK(reaches({}, kHost, "192.0.0.3", 53));
  CHECK(!reaches({}, kHost, "192.0.0.3", 80));
}

TEST_CASE("a private range is opened by name, port by port") {
  AttachNetwork wanted;
  wanted.allow["10.1.0.0/16"] = {{5432}, "the database"};
  CHECK(reaches(wanted, kHost, "10.1.2.3", 5432));
  CHECK(!reaches(wanted, kHost, "10.1.2.3", 22));
  CHECK(!reaches(wanted, kHost, "10.2.2.3", 5432));
  CHECK(!reaches(wanted, {{range("10.1.2.3")}, {}}, "10.1.2.3", 5432));
}

TEST_CASE("what is denied stays shut whatever opens it") {
  AttachNetwork wanted;
  wanted.allow["10.1.0.0/16"] = {{}, "all of it"};
  wanted.only = policy::Destinations{{"192.0.2.0/24", {{}, "the site"}}};
  wanted.deny["10.1.2.0/24"] = {{}, "but the payroll"};
  wanted.deny["192.0.2.9"] = {{22}, "but its shell"};
  CHECK(reaches(wanted, kHost, "10.1.3.1", 80));
  CHECK(!reaches(wanted, kHost, "10.1.2.1", 80));
  CHECK(reaches(wanted, kHost, "192.0.2.9", 80));
  CHECK(!reaches(wanted, kHost, "192.0.2.9", 22));
  CHECK(!reaches(wanted, kHost, "8.8.8.8", 80));
  CHECK(reaches(wanted, kHost, "192.0.0.3", 53));
}

TEST_CASE("a list that names nothing leaves the resolver alone") {
  AttachNetwork wanted;
  wanted.only.emplace();
  CHECK(!reaches(wanted, kHost, "8.8.8.8", 80));
  CHECK(reaches(wanted, kHost, "192.0.0.3", 53));
}

TEST_CASE("a door opens one port of one address of the host") {
  AttachNetwork wanted;
  wanted.doors.push_back({0xc6336407, 4711});
  CHECK(reaches(wanted, kHost, "198.51.100.7", 4711));
  CHECK(!reaches(wanted, kHost, "198.51.100.7", 4712));
  CHECK(!reaches(wanted, kHost, "203.0.113.1", 4711));
}

TEST_CASE("a host with thousands of private addresses of its own fits, and none is reached") {
  HostAddresses host;
  for (std::uint32_t i = 0; i < 5000; ++i) host.local.push_back({0x0a600000 + i, 32});
  CHECK(!reaches({}, host, "10.96.3.3", 443));
  AttachNetwork wanted;
  wanted.allow["10.0.0.0/8"] = {{}, "the cluster"};
  const auto rules = rules_of(wanted, host);
  REQUIRE(!rules);
  CHECK(rules.error().what.find("more than 400") != std::string::npos);
}

TEST_CASE("what the kernel says is compared with what was asked, attribute by attribute") {
  const auto request = [](std::uint32_t number, const char* name, bool more) {
    Requests made;
    made.begin(1, 0, std::uint32_t{0});
    made.nest(7, [&] {
      made.nest(kListElement, [&] { made.put_text(1, name); });
      made.nest(kListElement, [&] { made.put_big(2, number); });
      if (more) made.nest(kListElement, [&] { made.put_byte(3, 9); });
    });
    if (more) made.put_byte(9, 1);
    return made;
  };
  const Requests asked = request(5, "cmp", false);
  CHECK(says_all(asked.last_attributes(), request(5, "cmp", false).last_attributes()));
  CHECK(!says_all(asked.last_attributes(), request(6, "cmp", false).last_attributes()));
  CHECK(!says_all(asked.last_attributes(), request(5, "cmq", false).last_attributes()));
  CHECK(!says_all(asked.last_attributes(), request(5, "cmp", true).last_attributes()));
  CHECK(!says_all(asked.last_attributes(), {}));
  // What the kernel adds beside it is its own affair.
  Requests with_more = request(5, "cmp", false);
  with_more.put_byte(12, 3);
  CHECK(says_all(asked.last_attributes(), with_more.last_attributes()));
}

TEST_CASE("attributes of any lengths are read without leaving the message") {
  const std::vector<std::byte> noise(64, std::byte{0x21});
  for (std::size_t size = 0; size <= noise.size(); ++size)
    for (const Attribute& one : attributes(Bytes(noise).first(size)))
      CHECK(one.value.size() <= size);
}

TEST_CASE("a private network is planned: handed over early, awaited late, its rules belljar's") {
  using namespace launcher;
  using namespace launcher::test;
  const auto policy = policy_of(
      R"({"version":1,"network":{"mode":"private","deny":{"192.0.2.1":{"because":"x"}}}})");
  const Plan plan = plan_of(policy, plain_host());
  const auto index = [&](auto holds) {
    const auto found = std::find_if(plan.steps.begin(), plan.steps.end(), holds);
    REQUIRE(found != plan.steps.end());
    return found - plan.steps.begin();
  };
  const auto of = []<class Action>(Action) {
    return [](const Step& step) { return std::holds_alternative<Action>(step.action); };
  };
  CHECK(index(of(AttachNetwork{})) < index(of(HandOverNamespaces{})));
  CHECK(index(of(HandOverNamespaces{})) < index(of(AttachRoot{})));
  CHECK(index(of(PivotRoot{})) < index(of(AwaitNetwork{})));
  CHECK(index(of(AwaitNetwork{})) < index(of(DropCapabilities{})));
}

TEST_CASE("rules of what is reached are refused where nothing would hold them") {
  using namespace launcher;
  using namespace launcher::test;
  for (const char* mode : {"none", "shared", "/run/netns/x"}) {
    const auto policy = policy_of(R"({"version":1,"network":{"mode":")" + std::string(mode) +
                                  R"(","deny":{"192.0.2.1":{"because":"x"}}}})");
    const auto plan = build_plan(policy, plain_host(), {{"true"}, ""});
    REQUIRE(!plan);
    CHECK(plan.error().where == "network.deny");
  }
}

// --- what the self-test makes of what is seen ---------------------------------------------------

const launcher::NetworkLures kLures{"192.0.2.1:1000", "word", {"127.0.0.1:2000", "192.0.2.1:2000"}};

std::vector<Reached> all_well() {
  return {{"192.0.2.1:1000", "connected", "word"},
          {"127.0.0.1:2000", "ECONNREFUSED", ""},
          {"192.0.2.1:2000", "unanswered", ""},
          {"192.0.0.3", "resolved", ""}};
}

/// The one fault of `seen`.
std::string fault(const std::vector<Reached>& seen) {
  const auto faults = launcher::judge_network(kLures, seen);
  REQUIRE(faults.size() == 1);
  return faults.front().what;
}

TEST_CASE("a network is private when its door, a name server, and nothing else answers") {
  CHECK(launcher::judge_network(kLures, all_well()).empty());
}

TEST_CASE("each way in which a network is not private has its own words") {
  auto seen = all_well();
  seen[0].verdict = "unanswered";
  seen[0].said.clear();
  CHECK(fault(seen).find("outbound does not work") == 0);
  seen = all_well();
  seen[0].said = "another";
  CHECK(fault(seen).find("outbound does not work") == 0);
  seen = all_well();
  seen[2] = {"192.0.2.1:2000", "connected", ""};
  CHECK(fault(seen) == "a listener of the host's answers inside at 192.0.2.1:2000");
  seen = all_well();
  seen.erase(seen.begin() + 1);
  CHECK(fault(seen) == "a listener of the host's was not tried at 127.0.0.1:2000");
  seen = all_well();
  seen[3] = {"192.0.0.3", "unanswered", ""};
  CHECK(fault(seen) == "no resolver answers (192.0.0.3 unanswered)");
  seen[3] = {"192.0.0.3", "resolved", "code 2"};
  CHECK(fault(seen) == "no resolver answers (192.0.0.3 refuses: code 2)");
  seen.pop_back();
  CHECK(fault(seen) == "no resolver answers: /etc/resolv.conf names none inside");
  CHECK(launcher::judge_network(kLures, {}).size() == 4);
}

TEST_CASE("name servers are those of IPv4, wherever they stand in the file") {
  CHECK(name_servers("# nameserver 1.1.1.1\nsearch x\nnameserver 192.0.2.1\nnameserver ::1\n"
                     "  nameserver\t192.0.2.2 # x\nnameserver") ==
        std::vector<std::string>{"192.0.2.1", "192.0.2.2"});
}

}  // namespace
}  // namespace belljar::network
