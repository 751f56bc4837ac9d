// Subordinate ids: the tables, and the maps that come of them.
#include "launcher/sys/id_ranges.hpp"

#include "planning.hpp"

namespace belljar::launcher::test {
namespace {

using sys::IdRange;

constexpr std::string_view kPasswd =
    "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000:Ada:/home/ada:/bin/sh\nbroken\n"
    "ada2:x:1000:1000::/:/bin/sh\nten:x:10000:1::/:/bin/sh";

TEST_CASE("a table names a user by number, and by each of its names") {
  CHECK(sys::owner_names(kPasswd, 1000) == std::vector<std::string>{"1000", "ada", "ada2"});
  CHECK(sys::owner_names(kPasswd, 7) == std::vector<std::string>{"7"});
  const std::vector<IdRange> found =
      sys::ranges_of("ada:100000:65536\nbob:200000:65536\n1000:300000:10\nada2:400000:1\n",
                     {"1000", "ada", "ada2"});
  CHECK(found == std::vector<IdRange>{{100000, 65536}, {300000, 10}, {400000, 1}});
}

TEST_CASE("a line of the tables that is none gives nothing") {
  for (const char* line :
       {"", "ada", "ada:1", "ada::5", "ada:1:", "ada:1:0", "ada:-1:5", "ada: 1:5", "ada:1:5:6",
        "ada:0x10:5", "ada:4294967295:1", "ada:4294967290:10", "ada:99999999999:1", ":1:5",
        "xada:1:5", "#ada:1:5"})
    CHECK_MESSAGE(sys::ranges_of(line, {"ada"}).empty(), line);
  CHECK(sys::ranges_of("ada:4294967290:5", {"ada"}) == std::vector<IdRange>{{4294967290, 5}});
}

Host host_with(std::vector<IdRange> ranges) {
  Host host = plain_host();
  host.subordinate_uids = ranges;
  host.subordinate_gids = std::move(ranges);
  return host;
}

std::vector<IdLine> uids(std::string_view identity, const Host& host) {
  const Plan plan =
      plan_of(policy_of("{\"version\":1,\"identity\":{" + std::string(identity) + "}}"), host);
  return find<MapIds>(plan)->uids;
}

Error refusal(std::string_view identity, const Host& host) {
  return refusal_of(policy_of("{\"version\":1,\"identity\":{" + std::string(identity) + "}}"),
                    host);
}

TEST_CASE("more ids inside leave the first of them where they were") {
  const Host host = host_with({{100000, 10}, {200000, 100}});
  using Lines = std::vector<IdLine>;
  CHECK(uids(R"("ids":5)", host) == Lines{{1000, 1000, 1}, {0, 100000, 5}});
  CHECK(uids(R"("ids":20)", host) == Lines{{1000, 1000, 1}, {0, 100000, 10}, {10, 200000, 10}});
  CHECK(uids(R"("ids":1,"inside_uid":0)", host) == Lines{{0, 1000, 1}});
  CHECK(uids(R"("ids":12,"inside_uid":0)", host) ==
        Lines{{0, 1000, 1}, {1, 100000, 10}, {11, 200000, 1}});
  CHECK(uids(R"("ids":111,"inside_uid":10,"inside_gid":10)", host) ==
        Lines{{10, 1000, 1}, {0, 100000, 10}, {11, 200000, 100}});
  CHECK(uids(R"("umask":"022")", host) == Lines{{1000, 1000, 1}});
}

TEST_CASE("ids that nobody gave are refused, and so are root's and the own one") {
  CHECK(refusal(R"("ids":5)", plain_host()).what == "/etc/subuid gives uid 1000 no range of ids");
  CHECK(refusal(R"("ids":11)", host_with({{100000, 10}})).what ==
        "/etc/subuid gives uid 1000 10 ids, and 11 are asked for");
  CHECK(refusal(R"("ids":5)", host_with({{0, 10}})).what.ends_with("the id 0, which is root"));
  CHECK(refusal(R"("ids":5)", host_with({{991, 10}})).what.ends_with("its own id 1000"));
  CHECK(uids(R"("ids":5)", host_with({{990, 10}})).size() == 2);
  std::vector<IdRange> many;
  for (std::uint32_t i = 0; i < 400; ++i) many.push_back({100000 + 2 * i, 1});
  CHECK(refusal(R"("ids":400)", host_with(many)).what == "the kernel takes 340 ranges at most");
}

TEST_CASE("a range that is listed twice counts once, and ranges that overlap are refused") {
  using Lines = std::vector<IdLine>;
  const Host twice = host_with({{100000, 10}, {100000, 10}, {200000, 10}});
  CHECK(uids(R"("ids":15)", twice) == Lines{{1000, 1000, 1}, {0, 100000, 10}, {10, 200000, 5}});
  CHECK(refusal(R"("ids":25)", twice).what.find("20 ids, and 25") != std::string::npos);
  const std::vector<std::vector<IdRange>> overlapping = {{{100000, 10}, {100009, 10}},
                                                         {{100009, 10}, {100000, 10}},
                                                         {{100000, 10}, {100002, 3}},
                                                         {{100002, 3}, {100000, 10}},
                                                         {{100000, 10}, {100000, 5}}};
  for (const std::vector<IdRange>& ranges : overlapping) {
    const belljar::Error error = refusal(R"("ids":5)", host_with(ranges));
    CHECK(error.what.starts_with("/etc/subuid gives uid 1000 the ranges "));
    CHECK(error.what.ends_with("which overlap"));
  }
  CHECK(refusal(R"("ids":5)", host_with(overlapping[0])).what.find("100000:10 and 100009:10") !=
        std::string::npos);
  CHECK(uids(R"("ids":20)", host_with({{100010, 10}, {100000, 10}})).size() == 3);
}

TEST_CASE("only a caller without privileges needs the two programs") {
  const policy::Policy policy = policy_of(R"({"version":1,"identity":{"uid":1000,"ids":5}})");
  Host host = host_with({{100000, 10}});
  CHECK(find<MapIds>(plan_of(policy, host))->by_helpers);
  CHECK(texts(plan_of(policy, host))
            .find("map uid 1000 to 1000, uid 100000-100004 to 0-4, gid 1000 to 1000, gid "
                  "100000-100004 to 0-4, by newuidmap and newgidmap, and read it back\n") !=
        std::string::npos);
  host.id_helpers_refused = Error{ErrorKind::kUnavailable, ENOENT, "not there", {}, {}};
  CHECK(refusal_of(policy, host).what == "not there");
  host.uid = 0;
  host.capabilities = root_host().capabilities;
  CHECK_FALSE(find<MapIds>(plan_of(policy, host))->by_helpers);
}

TEST_CASE("a user namespace that is joined is not changed") {
  const std::string joins = R"({"version":1,"namespaces":{"user":"/run/user-ns"})";
  const Plan plan = plan_of(policy_of(joins + "}"), plain_host());
  CHECK(find<MapIds>(plan) == nullptr);
  CHECK(find<ForbidUserNamespaces>(plan) == nullptr);
  CHECK(find<JoinNamespace>(plan)->path == "/run/user-ns");
  for (const char* more : {R"(,"capabilities":["CHOWN"])", R"(,"identity":{"ids":5})",
                           R"(,"syscalls":{"base":"none"})"})
    CHECK(refusal_of(policy_of(joins + more + "}"), plain_host()).what.find("joined") !=
          std::string::npos);
}

TEST_CASE("what is joined is not created, and joined before anything is") {
  const Plan plan = plan_of(
      policy_of(R"({"version":1,"namespaces":{"uts":"/run/u"},"network":{"mode":"/run/n"}})"),
      plain_host());
  CHECK(
      texts(plan).starts_with("join the uts namespace /run/u, and read it back\n"
                              "join the net namespace /run/n, and read it back\n"
                              "create namespaces: user, mount, pid, ipc, cgroup\n"));
  CHECK(find<RaiseLoopback>(plan) == nullptr);
}

}  // namespace
}  // namespace belljar::launcher::test
