// Identity, namespaces, network, capabilities, limits, env, io, and the closed top level.
#include <chrono>
#include <cstdint>
#include <string>

#include "loading.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_in;
using testing::errors_of;
using testing::first_message;
using testing::load_body;

constexpr std::string_view kRefused =
    "not enforced by this version of belljar, so it is refused; remove it";

TEST_CASE("the version is required and must be 1") {
  CHECK(errors_of("{}") == "p.json:1:1: \"version\" is required; this belljar reads version 1");
  CHECK(errors_of("{\"version\":null}") ==
        "p.json:1:1: \"version\" is required; this belljar reads version 1");
  CHECK(errors_of("{\"version\":2,\"new_key\":{}}") ==
        "p.json:1:12: version: version 2 is unknown; this belljar reads version 1");
  CHECK(errors_of("{\"version\":\"1\"}") ==
        "p.json:1:12: version: expected the number 1, got the string \"1\"");
  CHECK(errors_of("{\"version\":1.0}") ==
        "p.json:1:12: version: expected the number 1, got the number 1.0");
}

TEST_CASE("extensions and $schema are ignored at the top level only") {
  CHECK(errors_in(R"("$schema":"s.json","x-team":{"anything":[null]})") == "");
  CHECK(errors_in(R"("network":{"x-team":1})") ==
        "p.json:1:25: network[\"x-team\"]: unknown key (one of: mode, enforce, "
        "allow, only, deny, publish)");
}

TEST_CASE("keys of the design that are not enforced are refused wherever they are") {
  for (const char* key : {"kind", "report"}) {
    CHECK(errors_in("\"" + std::string(key) + "\":{}") ==
          "p.json:1:14: " + std::string(key) + ": " + std::string(kRefused));
  }
  CHECK(first_message(R"("network":{"dns":[]})") == kRefused);
  CHECK(first_message(R"("report":null)") == kRefused);
}

TEST_CASE("ports are published at loopback addresses and sockets") {
  const Policy policy =
      load_body(R"("network":{"publish":{"127.1.2.3:8080":80,"/run/app.sock":8000,"/x":null}})");
  CHECK(policy.network.publish ==
        std::map<std::string, std::uint16_t>{{"/run/app.sock", 8000}, {"127.1.2.3:8080", 80}});
  for (const char* outside : {"10.0.0.1:80", "127.0.0.1:0", "127.0.0.1", "x", "/a/../b"})
    CHECK(first_message(R"("network":{"publish":{")" + std::string(outside) + "\":80}}") != "");
  CHECK(first_message(R"("network":{"publish":{"127.0.0.1:80":0}})") != "");
}

TEST_CASE("a test tries something that is denied or allowed, or runs a command that ends") {
  const Policy policy = load_body(
      R"("tests":[{"try":"write /usr/x","expect":"denied"},
                  {"try":"connect [::1]:80","expect":"allowed"},
                  {"run":["true"],"expect":{"exit":0,"cause":"exited"}}])");
  REQUIRE(policy.tests.size() == 3);
  CHECK(policy.tests[0].attempt == "write /usr/x");
  CHECK(policy.tests[0].expect.kind == Expectation::Kind::kDenied);
  CHECK(policy.tests[1].expect.kind == Expectation::Kind::kAllowed);
  CHECK(policy.tests[2].run == std::vector<std::string>{"true"});
  CHECK(policy.tests[2].expect.exit_code == 0U);
  CHECK(policy.tests[2].expect.cause == "exited");
  CHECK(policy.where("tests[1].try") == "p.json:2:26");
}

TEST_CASE("a test that means nothing is refused") {
  const auto refusal = [](const char* test) {
    return first_message("\"tests\":[" + std::string(test) + "]");
  };
  const std::string forms =
      "expected \"read /PATH\", \"write /PATH\", \"exec /PATH\" or \"connect ADDRESS:PORT\"";
  for (const char* attempt : {"write", "write x", "write /..", "chmod /x", "connect 1.1.1.1",
                              "connect 1.1.1.1:0", "connect :80", ""}) {
    CAPTURE(attempt);
    CHECK(contains(
        refusal(("{\"try\":\"" + std::string(attempt) + "\",\"expect\":\"denied\"}").c_str()),
        forms));
  }
  CHECK(contains(refusal(R"({"expect":"denied"})"), "one of \"try\" and \"run\""));
  CHECK(contains(refusal(R"({"try":"read /x","run":["x"],"expect":"denied"})"), "one of"));
  CHECK(contains(refusal(R"({"try":"read /x"})"), "\"expect\" is required"));
  CHECK(contains(refusal(R"({"try":"read /x","expect":{"exit":0}})"), "\"denied\" or"));
  CHECK(contains(refusal(R"({"run":["x"],"expect":"denied"})"), "as in {\"exit\": 0}"));
  CHECK(contains(refusal(R"({"run":[],"expect":{"exit":0}})"), "no command"));
  CHECK(contains(refusal(R"({"run":["x"],"expect":{}})"), "\"exit\" or \"cause\""));
  CHECK(contains(refusal(R"({"run":["x"],"expect":{"exit":256}})"), "256"));
  CHECK(contains(refusal(R"({"run":["x"],"expect":{"cause":"wal_time"}})"), "\"wall_time\""));
  CHECK(contains(refusal(R"({"try":"read /x","expect":"denyed"})"), "did you mean \"denied\""));
}

TEST_CASE("a namespace is a word or the path of one to join") {
  const Policy policy = load_body(
      R"("namespaces":{"ipc":"/proc/7/ns//ipc","time":"/run/time"},"network":{"mode":"/run/net/"})");
  CHECK(policy.namespaces.ipc == Namespace{NamespaceMode::kJoin, "/proc/7/ns/ipc"});
  CHECK(policy.namespaces.time == NamespaceMode::kJoin);
  CHECK(policy.namespaces.uts == NamespaceMode::kNew);
  CHECK(policy.network.mode.path == "/run/net");
  CHECK(errors_in(R"("namespaces":{"ipc":"./ipc"})") ==
        "p.json:1:34: namespaces.ipc: expected \"new\", \"shared\" or a path to join, got the "
        "string \"./ipc\"");
  CHECK(contains(first_message(R"("namespaces":{"ipc":"/a/../b"})"), ".."));
  CHECK(contains(first_message(R"("identity":{"hostname":"x"},"namespaces":{"uts":"/run/uts"})"),
                 "would rename all that is in the namespace of namespaces.uts"));
  CHECK(
      contains(first_message(R"("namespaces":{"time":"/run/t","time_offsets":{"boottime":"1h"}})"),
               "clocks of a namespace that is joined cannot be moved"));
}

TEST_CASE("identity.ids is a number of ids, and limits.cpu_time a time above zero") {
  CHECK_FALSE(load_body(R"("identity":{})").identity.ids);
  CHECK(load_body(R"("identity":{"ids":65536})").identity.ids == 65536);
  for (const char* wrong : {"0", "-1", "4294967295", "\"65536\"", "1.5"})
    CHECK(contains(first_message(R"("identity":{"ids":)" + std::string(wrong) + "}"),
                   "expected a whole number from 1 to 4294967294"));
  CHECK(load_body(R"("limits":{"cpu_time":"90s"})").limits.cpu_time == std::chrono::seconds(90));
  CHECK(first_message(R"("limits":{"cpu_time":"0s"})") ==
        "0 never means unlimited; leave it out for no limit");
}

TEST_CASE("limits that the kernel ignores are refused") {
  for (const char* name : {"locks", "rss"}) {
    CHECK(first_message(R"("limits":{"rlimits":{")" + std::string(name) + R"(":"unlimited"}})") ==
          "Linux takes this limit and ignores it (man 2 getrlimit), so it is refused; remove it");
  }
}

TEST_CASE("time is shared unless it is new, and only a new one has offsets") {
  using std::chrono::milliseconds;
  CHECK(load_body(R"("name":"x")").namespaces.time == NamespaceMode::kShared);
  const Namespaces spaces = load_body(R"("namespaces":{"time":"new",
      "time_offsets":{"monotonic":"-1500ms","boottime":"1d"}})")
                                .namespaces;
  CHECK(spaces.time == NamespaceMode::kNew);
  CHECK(spaces.time_offsets.monotonic == milliseconds(-1500));
  CHECK(spaces.time_offsets.boottime == milliseconds(86'400'000));
  CHECK(first_message(R"("namespaces":{"time_offsets":{"boottime":"1s"}})") ==
        "the host's clocks cannot be moved; make \"time\" \"new\"");
  CHECK(first_message(R"("namespaces":{"time":"new","time_offsets":{"boottime":5}})") ==
        "expected a duration such as \"1h\" or \"-30s\", got the number 5");
  CHECK(first_message(R"("namespaces":{"time":"new","time_offsets":{"realtime":"1s"}})")
            .starts_with("unknown key"));
}

TEST_CASE("destinations are IPv4 addresses and ranges, written in one way, with a reason") {
  const auto error = [](const std::string& list, const std::string& range,
                        const std::string& value = R"({"because":"x"})") {
    return first_message(R"("network":{"mode":"private",")" + list + R"(":{")" + range +
                         "\":" + value + "}}");
  };
  CHECK(error("deny", "10.0.0.0/8") == "");
  CHECK(error("deny", "0.0.0.0/0") == "");
  CHECK(error("only", "192.0.2.1", R"({"ports":[1,65535],"because":"x"})") == "");
  for (const char* wrong : {"10.0.0.0/33", "10.0.0", "10.0.0.0.0", "0x0a.0.0.1", "010.0.0.1",
                            "10.0.0.256", "10.0.0.1/", "/8", "", "::1", "example.org", "10.0.0.-1"})
    CHECK(contains(error("deny", wrong), "expected an IPv4 address or range"));
  CHECK(contains(error("deny", "10.1.2.3/8"), "write it as \"10.0.0.0/8\""));
  CHECK(contains(error("deny", "10.1.2.3/32"), "write it as \"10.1.2.3\""));
  CHECK(contains(error("allow", "192.0.2.1"), "lies in none of the private ranges"));
  CHECK(contains(error("allow", "10.0.0.0/7"), "lies in none of the private ranges"));
  CHECK(error("allow", "100.64.1.0/24") == "");
  CHECK(contains(error("deny", "10.0.0.0/8", "{}"), "because"));
  CHECK(error("deny", "10.0.0.0/8", R"({"ports":[0],"because":"x"})") != "");
}

TEST_CASE("landlock is off until something is asked for") {
  CHECK_FALSE(load_body(R"("name":"x")").landlock.asks_for_something());
  CHECK_FALSE(load_body(R"("landlock":{"enforce":"prefer"})").landlock.asks_for_something());
  const Landlock all = load_body(R"("landlock":{"filesystem":true,"scopes":["signal"],
      "bind_tcp":[0,65535],"connect_tcp":[],"enforce":"prefer"})")
                           .landlock;
  CHECK(all.filesystem);
  CHECK(all.scopes == std::vector{LandlockScope::kSignal});
  CHECK(all.bind_tcp == std::vector<std::uint16_t>{0, 65535});
  CHECK(all.connect_tcp->empty());
  CHECK(all.enforce == Enforce::kPrefer);
  CHECK(load_body(R"("landlock":{"connect_tcp":[]})").landlock.asks_for_something());
}

TEST_CASE("what landlock cannot mean is refused") {
  CHECK(first_message(R"("landlock":{"scopes":["signals"]})") ==
        "expected \"abstract_unix_socket\" or \"signal\", got the string \"signals\"; did you mean "
        "\"signal\"?");
  CHECK(first_message(R"("landlock":{"bind_tcp":[65536]})").starts_with("expected a whole number"));
  CHECK(first_message(R"("landlock":{"connect_tcp":[80,80]})") == "listed twice");
  CHECK(first_message(R"("landlock":{"network":{}})").starts_with("unknown key"));
}

TEST_CASE("a section that is no object is refused with an example") {
  CHECK(errors_in(R"("network":"none")") ==
        "p.json:1:24: network: expected an object such as {\"mode\": \"none\"}, got the string "
        "\"none\"");
  CHECK(errors_in(R"("env":{"pass":"PATH"})") ==
        "p.json:1:28: env.pass: expected an array such as [\"PATH\", \"LC_*\"], got the string "
        "\"PATH\"");
  CHECK(errors_in(R"("filesystem":{"mounts":[]})") ==
        "p.json:1:37: filesystem.mounts: expected an object such as {\"/tmp\": {\"type\": "
        "\"tmpfs\", \"size\": \"64MiB\"}}, got an array");
}

TEST_CASE("all errors come at once, in the order of the text") {
  CHECK(errors_in(R"("env":{"pas":[]},"network":{"mode":"nome"},"io":{"keep":[1]})") ==
        "p.json:1:21: env.pas: unknown key; did you mean \"pass\"?\n"
        "p.json:1:49: network.mode: expected \"none\", \"shared\", \"private\" or a path to join, "
        "got the string "
        "\"nome\"; did you mean \"none\"?\n"
        "p.json:1:71: io.keep[0]: expected a whole number from 3 to 1048575, got the number 1");
}

TEST_CASE("ids are caller, pool, or a number that the kernel can hold") {
  const Policy policy = load_body(R"("identity":{"uid":"pool","gid":4294967294,"inside_uid":0})");
  CHECK(policy.identity.uid == Id{Id::From::kPool, 0});
  CHECK(policy.identity.gid == Id{Id::From::kNumber, 4294967294});
  CHECK(policy.identity.inside_uid == 0U);
  for (const char* bad : {"4294967295", "4294967296", "-1", "1.0", "\"1000\"", "\"root\"", "true",
                          "8589934592", "[]", "{}"}) {
    const std::string text(bad);
    CHECK(
        contains(errors_in("\"identity\":{\"uid\":" + text + "}"),
                 "p.json:1:32: identity.uid: expected \"caller\", \"pool\" or a whole number from "
                 "0 to 4294967294, got "));
    CHECK(contains(errors_in("\"identity\":{\"inside_gid\":" + text + "}"),
                   "expected a whole number from 0 to 4294967294, got "));
    CHECK(contains(errors_in("\"identity\":{\"groups\":[" + text + "]}"),
                   "identity.groups[0]: expected a whole number from 0 to 4294967294, got "));
  }
}

TEST_CASE("a umask is a string of octal digits up to 0777") {
  CHECK(load_body(R"("identity":{"umask":"077"})").identity.umask == 077U);
  CHECK(load_body(R"("name":"x")").identity.umask == 022U);
  for (const char* bad : {"22", "\"1777\"", "\"088\"", "\"\"", "\"u=rwx\""}) {
    CHECK(contains(errors_in("\"identity\":{\"umask\":" + std::string(bad) + "}"),
                   "identity.umask: expected a string of octal digits such as \"022\", at most "
                   "\"0777\", got "));
  }
}

TEST_CASE("host names are short and plain") {
  CHECK(load_body(R"("identity":{"hostname":"a-1.b"})").identity.hostname == "a-1.b");
  for (const std::string& bad : {std::string(), std::string(65, 'a'), std::string("a_b"),
                                 std::string("a b"), std::string("\xc3\xa9")}) {
    CHECK(contains(errors_in("\"identity\":{\"hostname\":\"" + bad + "\"}"),
                   "expected a host name of 1 to 64 letters"));
  }
}

TEST_CASE("a host name in the host's own uts namespace is refused") {
  CHECK(errors_in(R"("identity":{"hostname":"box"},"namespaces":{"uts":"shared"})") ==
        "p.json:1:37: identity.hostname: would rename the host, because namespaces.uts is "
        "\"shared\" (p.json:1:64); make it \"new\" or remove the host name");
}

TEST_CASE("namespaces are new unless shared") {
  const Policy policy = load_body(R"("namespaces":{"pid":"shared","nested_user":true})");
  CHECK(policy.namespaces.user == NamespaceMode::kNew);
  CHECK(policy.namespaces.pid == NamespaceMode::kShared);
  CHECK(policy.namespaces.nested_user);
  CHECK(errors_in(R"("namespaces":{"nested_user":"yes"})") ==
        "p.json:1:42: namespaces.nested_user: expected true or false, got the string \"yes\"");
}

TEST_CASE("capabilities are named in any case, with or without CAP_") {
  const Policy policy =
      load_body(R"("capabilities":["net_admin","CAP_SYS_PTRACE","Chown","checkpoint_restore"])");
  CHECK(policy.capabilities == std::vector<std::string>{"CAP_NET_ADMIN", "CAP_SYS_PTRACE",
                                                        "CAP_CHOWN", "CAP_CHECKPOINT_RESTORE"});
}

TEST_CASE("unknown and repeated capabilities are refused") {
  CHECK(errors_in(R"("capabilities":["NET_ADMN","all",5,"chown","CAP_CHOWN"])") ==
        "p.json:1:30: capabilities[0]: unknown capability \"CAP_NET_ADMN\"; did you mean "
        "\"CAP_NET_ADMIN\"?\n"
        "p.json:1:41: capabilities[1]: unknown capability \"CAP_ALL\"; did you mean "
        "\"CAP_KILL\"?\n"
        "p.json:1:47: capabilities[2]: expected the name of a capability, got the number 5\n"
        "p.json:1:57: capabilities[4]: listed twice");
}

TEST_CASE("rlimits are read in the kernel's units") {
  const auto limits = load_body(R"("limits":{"wall_time":"1500ms","rlimits":{
      "as":"4GiB","cpu":"2m","rttime":"5ms","nofile":3,"stack":"unlimited","rtprio":0,"core":"0B"
      }})")
                          .limits;
  CHECK(limits.wall_time == std::chrono::milliseconds(1500));
  CHECK(limits.rlimits.at("as").value == std::uint64_t{4} << 30);
  CHECK(limits.rlimits.at("cpu").value == 120U);
  CHECK(limits.rlimits.at("rttime").value == 5000U);
  CHECK(limits.rlimits.at("nofile").value == 3U);
  CHECK(limits.rlimits.at("stack").unlimited);
  CHECK_FALSE(limits.rlimits.at("core").unlimited);
  CHECK(limits.rlimits.at("core").value == 0U);
}

TEST_CASE("zero is never taken for unlimited") {
  CHECK(first_message(R"("limits":{"wall_time":"0s"})") ==
        "0 never means unlimited; leave it out for no limit");
  const std::string zero =
      "0 never means unlimited, and nothing could run with it; write \"unlimited\" for no limit";
  CHECK(first_message(R"("limits":{"rlimits":{"cpu":"0s"}})") == zero);
  CHECK(first_message(R"("limits":{"rlimits":{"nproc":0}})") == zero);
  CHECK(first_message(R"("limits":{"rlimits":{"nofile":0}})") == zero);
  CHECK(first_message(R"("limits":{"rlimits":{"nofile":2}})") ==
        "at least 3 is needed for a program to start");
}

TEST_CASE("bare numbers, wrong kinds and unknown limits are refused with the remedy") {
  CHECK(errors_in(R"("limits":{"wall_time":5})") ==
        "p.json:1:36: limits.wall_time: expected a duration such as \"30s\", got the number 5; "
        "write \"5s\" if seconds are meant");
  CHECK(errors_in(R"("limits":{"rlimits":{"as":512}})") ==
        "p.json:1:40: limits.rlimits.as: expected a size such as \"512MiB\", got the number 512; "
        "write \"512B\" if bytes are meant");
  CHECK(first_message(R"("limits":{"rlimits":{"as":true}})") ==
        "expected a size such as \"512MiB\", got true");
  CHECK(first_message(R"("limits":{"rlimits":{"as":-1}})") ==
        "expected a size such as \"512MiB\", got the number -1");
  CHECK(first_message(R"("limits":{"rlimits":{"cpu":"1500ms"}})") ==
        "the kernel counts whole seconds here, got the string \"1500ms\"");
  CHECK(first_message(R"("limits":{"rlimits":{"nofile":"256"}})") ==
        "expected a whole number, or \"unlimited\", got the string \"256\"");
  CHECK(errors_in(R"("limits":{"rlimits":{"nofiles":5}})") ==
        "p.json:1:35: limits.rlimits.nofiles: unknown key; did you mean \"nofile\"?");
  CHECK(first_message(R"("limits":{"rlimits":{"nofile":18446744073709551615}})") ==
        "this number means no limit; write \"unlimited\"");
}

TEST_CASE("environment patterns and names are checked") {
  const Policy policy = load_body(R"("env":{"pass":["LC_*","A?"],"set":{"A.b":"x=y"}})");
  CHECK(policy.env.pass == std::vector<std::string>{"LC_*", "A?"});
  CHECK(policy.env.set.at("A.b") == "x=y");
  CHECK(errors_in(R"("env":{"pass":["A B",""],"deny":["[A]"],"set":{"":"x","A=B":"y","C":1}})") ==
        "p.json:1:29: env.pass[0]: expected a name of letters, digits and \"_\", or a pattern with "
        "\"*\" or \"?\", got the string \"A B\"\n"
        "p.json:1:35: env.pass[1]: expected a name of letters, digits and \"_\", or a pattern with "
        "\"*\" or \"?\", got the string \"\"\n"
        "p.json:1:47: env.deny[0]: expected a name of letters, digits and \"_\", or a pattern with "
        "\"*\" or \"?\", got the string \"[A]\"\n"
        "p.json:1:61: env.set[\"\"]: expected the name of a variable, which is not empty and holds "
        "no \"=\", got \"\"\n"
        "p.json:1:68: env.set[\"A=B\"]: expected the name of a variable, which is not empty and "
        "holds no \"=\", got \"A=B\"\n"
        "p.json:1:82: env.set.C: expected a string, got the number 1");
}

TEST_CASE("limits of the whole sandbox have units and bounds") {
  const auto limits = load_body(R"("limits":{"memory":"64MiB","swap":"0B","processes":20,
      "cpus":0.5,"output":"1KiB","disk":"1MiB","enforce":"prefer"})")
                          .limits;
  CHECK(limits.memory == std::uint64_t{64} << 20);
  CHECK(limits.swap == 0U);
  CHECK(limits.processes == 20U);
  CHECK(limits.cpus == 500U);
  CHECK(limits.output == 1024U);
  CHECK(limits.disk == 1U << 20);
  CHECK(contains(errors_in(R"("limits":{"disk":"0B"})"), "at least \"4096B\" is needed"));
  CHECK(contains(errors_in(R"("limits":{"output":"0B"})"), "at least \"1B\" is needed"));
  CHECK(limits.enforce == Enforce::kPrefer);
  CHECK(load_body(R"("limits":{"memory":"4MiB"})").limits.enforce == Enforce::kRequire);
  for (const auto& [text, thousandths] :
       {std::pair{"2", 2000U}, {"0.01", 10U}, {"1.25", 1250U}, {"8192", 8'192'000U}})
    CHECK(load_body("\"limits\":{\"cpus\":" + std::string(text) + "}").limits.cpus == thousandths);
  for (const char* bad : {"0", "0.001", "-1", "8193", "1e3", "0.1234", "\"2\"", "true", "1e300"})
    CHECK(contains(errors_in("\"limits\":{\"cpus\":" + std::string(bad) + "}"),
                   "limits.cpus: expected a number of processors such as 2 or 0.5"));
  for (const char* bad : {"\"0B\"", "\"1MiB\"", "512", "\"unlimited\""})
    CHECK(
        contains(errors_in("\"limits\":{\"memory\":" + std::string(bad) + "}"), "limits.memory: "));
  CHECK(first_message(R"("limits":{"memory":"1MiB"})") ==
        "at least \"4MiB\" is needed: 0 never means unlimited, and nothing could run with less; "
        "leave it out for no limit");
  for (const char* bad : {"0", "4194305", "-1", "1.5", "\"9\""})
    CHECK(contains(errors_in("\"limits\":{\"processes\":" + std::string(bad) + "}"),
                   "expected a whole number from 1 to 4194304"));
  CHECK(contains(errors_in(R"("limits":{"enforce":"prefr"})"), "did you mean \"prefer\"?"));
}

TEST_CASE("kept descriptors are 3 and up, once each") {
  const Policy policy = load_body(R"("io":{"stdin":"null","keep":[3,1048575]})");
  CHECK(policy.io.standard_input == Stdio::kNull);
  CHECK(policy.io.keep == std::vector<int>{3, 1048575});
  CHECK(errors_in(R"("io":{"keep":[2,3,3,1048576]})") ==
        "p.json:1:28: io.keep[0]: expected a whole number from 3 to 1048575, got the number 2\n"
        "p.json:1:32: io.keep[2]: listed twice\n"
        "p.json:1:34: io.keep[3]: expected a whole number from 3 to 1048575, got the number "
        "1048576");
}

TEST_CASE("null is no value within an array") {
  CHECK(contains(errors_in(R"("env":{"pass":[null]})"), "env.pass[0]: expected a name"));
  CHECK(contains(errors_in(R"("env":{"pass":[null]})"), "got null"));
}

}  // namespace
}  // namespace belljar::policy
