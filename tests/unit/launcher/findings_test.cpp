// What facts mean, for machines that are not here. Errnos and files are those of the documents that
// docs/doctor.md names.
#include "launcher/findings.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <set>

#include "launcher/record.hpp"
#include "policy/forms.hpp"
#include "policy/load.hpp"

namespace belljar::launcher {
namespace {

policy::Policy load(const std::string& text) {
  policy::Layers layers;
  layers.add_text(text, "p.json");
  auto policy = layers.resolve();
  REQUIRE(policy.has_value());
  return std::move(*policy);
}

policy::Policy agent(const std::string& more = "") {
  return load("{\"version\":1,\"extends\":[\"builtin:agent@1\"]" + more + "}");
}

/// A machine where all is well.
Facts good() {
  Facts facts;
  Tries& tries = facts.tries;
  for (Tried* tried : {&tries.clone3, &tries.unshare_user, &tries.map_ids, &tries.unshare_rest,
                       &tries.make_private, &tries.mount_tree, &tries.mount_tmpfs, &tries.proc_full,
                       &tries.proc_read_only, &tries.proc_processes, &tries.sethostname,
                       &tries.pivot_root, &tries.tun, &tries.nftables})
    *tried = 0;
  tries.seccomp = EFAULT;
  facts.session_uid = 20001;
  facts.privileged = true;
  facts.landlock_abi = 7;
  facts.kernel = "Linux version 6.1.0";
  facts.workspace_root = "/tmp/sessions";
  return facts;
}

/// Ids with their weight: "no-tun!" is missing, "no-tun~" weaker.
std::set<std::string> ids(const Facts& facts, const policy::Policy& policy) {
  std::set<std::string> found;
  for (const HostFinding& finding : find(facts, policy)) {
    CHECK_FALSE(finding.evidence.empty());
    CHECK_FALSE(finding.remedy.empty());
    const auto all = finding_ids();
    CHECK(std::find(all.begin(), all.end(), finding.id) != all.end());
    const char* mark = finding.weight == Weight::kMissing  ? "!"
                       : finding.weight == Weight::kWeaker ? "~"
                                                           : "";
    found.insert(std::string(finding.id) + mark);
  }
  return found;
}

using Ids = std::set<std::string>;

TEST_CASE("a good machine lacks nothing") {
  CHECK(ids(good(), agent()).empty());
  CHECK(back_end_text(good()) == "modern: clone3 and the new mount API work");
}

TEST_CASE("Debian's switch is told from a filter and from a chroot") {
  Facts facts = good();
  facts.tries.unshare_user = EPERM;
  facts.sysctls["kernel.unprivileged_userns_clone"] = 0;
  CHECK(ids(facts, agent()) == Ids{"debian-userns-off!"});
  facts.sysctls["kernel.unprivileged_userns_clone"] = 1;
  CHECK(ids(facts, agent()) == Ids{"chroot!"});
  facts.filtered = true;
  CHECK(ids(facts, agent()) == Ids{"container-seccomp!"});
}

TEST_CASE("Ubuntu's restriction lets the namespace come up, and takes its capabilities") {
  Facts facts = good();
  facts.sysctls["kernel.apparmor_restrict_unprivileged_userns"] = 1;
  CHECK(ids(facts, agent()).empty());
  facts.apparmor = "unconfined";
  facts.tries.map_ids = EACCES;
  CHECK(ids(facts, agent()) == Ids{"ubuntu-apparmor!"});
  facts.tries.map_ids = 0;
  facts.tries.make_private = EACCES;
  CHECK(ids(facts, agent()) == Ids{"ubuntu-apparmor!"});
}

TEST_CASE("namespaces that are used up are told from those that are switched off") {
  Facts facts = good();
  facts.tries.unshare_rest = ENOSPC;
  CHECK(ids(facts, agent()) == Ids{"namespaces-used-up!"});
  facts.sysctls["user.max_net_namespaces"] = 0;
  CHECK(ids(facts, agent()) == Ids{"namespaces-off!"});
}

TEST_CASE("a refused mount is SELinux's where that enforces, and AppArmor's elsewhere") {
  Facts facts = good();
  facts.tries.make_private = EACCES;
  facts.apparmor = "docker-default (enforce)";
  CHECK(ids(facts, agent()) == Ids{"apparmor-mount!"});
  facts.apparmor.clear();
  facts.selinux = true;
  CHECK(ids(facts, agent()) == Ids{"selinux!"});
}

TEST_CASE("uid 0 cannot be mapped by a root without SETFCAP") {
  Facts facts = good();
  facts.tries.map_ids = EPERM;
  facts.session_uid = 0;
  CHECK(ids(facts, agent()) == Ids{"map-root!"});
  facts.session_uid = 5;
  CHECK(ids(facts, agent()) == Ids{"map-refused!"});
}

TEST_CASE("another uid needs privileges, whatever ranges there are") {
  Facts facts = good();
  facts.privileged = false;
  facts.caller_uid = 1000;
  facts.subuid_range = facts.newuidmap = true;
  CHECK(ids(facts, agent()).empty());
  CHECK(ids(facts, agent(R"(,"identity":{"uid":5})")) == Ids{"other-uid!"});
}

TEST_CASE("more ids than one need a range, and for a plain user newuidmap with its privileges") {
  const policy::Policy many = agent(R"(,"identity":{"ids":65536})");
  Facts facts = good();
  facts.privileged = false;
  facts.subuid_range = facts.newuidmap = true;
  CHECK(ids(facts, many).empty());
  facts.no_new_privs = true;
  CHECK(ids(facts, many) == Ids{"no-subids!"});
  facts.privileged = true;
  CHECK(ids(facts, many).empty());
  facts.subuid_range = false;
  CHECK(ids(facts, many) == Ids{"no-subids!"});
  CHECK(ids(facts, agent()).empty());
}

TEST_CASE("a masked /proc matters as the policy says, and the remedy is what the kernel allows") {
  Facts facts = good();
  facts.tries.proc_full = facts.tries.proc_read_only = facts.tries.proc_processes = EPERM;
  facts.proc_masks = {"/proc/kcore", "/proc/keys"};
  const std::string must = R"(,"filesystem":{"mounts":{"/proc":{"enforce":"require"}}})";
  CHECK(ids(facts, agent()) == Ids{"proc-masked~"});
  CHECK(ids(facts, agent(must)) == Ids{"proc-masked!"});
  CHECK(find(facts, agent(must)).front().remedy.find("hidden helper") != std::string::npos);
  facts.tries.proc_processes = 0;
  CHECK(find(facts, agent(must)).front().remedy.find("\"subset\": \"pid\"") != std::string::npos);
  CHECK(ids(facts, load(R"({"version":1})")).empty());
}

TEST_CASE("Landlock is missing only where a policy requires it") {
  Facts facts = good();
  facts.landlock_abi = -EOPNOTSUPP;
  CHECK(ids(facts, agent()) == Ids{"no-landlock~"});
  CHECK(ids(facts, agent(R"(,"landlock":{"enforce":"require"})")) == Ids{"no-landlock!"});
  CHECK(find(facts, agent()).front().remedy.find("lsm=") != std::string::npos);
}

TEST_CASE("an older Landlock is weaker where it is preferred, and each right has its kernel") {
  Facts facts = good();
  facts.landlock_abi = 6;
  CHECK(ids(facts, agent()).empty());
  facts.landlock_abi = 3;
  CHECK(ids(facts, agent()) == Ids{"old-landlock~"});
  CHECK(ids(facts, agent(R"(,"landlock":{"enforce":"require"})")) == Ids{"old-landlock!"});
  const std::vector<HostFinding> found = find(facts, agent(R"(,"landlock":{"bind_tcp":[80]})"));
  const auto names = [&](const char* kernel) {
    return std::any_of(found.begin(), found.end(), [&](const HostFinding& finding) {
      return finding.remedy.find(kernel) != std::string::npos;
    });
  };
  CHECK(names("Linux 6.7"));
  CHECK(names("Linux 6.12"));
  // Its network is its own, and its processes are: nothing is lost without the scopes.
  CHECK(ids(facts, load(R"({"version":1,"landlock":{"enforce":"prefer","scopes":["signal",
      "abstract_unix_socket"]}})"))
            .empty());
}

/// A machine on which no cgroup can be made for memory: `version` 0 where none is mounted.
Facts without_cgroups(int version, int error, const std::string& directory) {
  Facts facts = good();
  facts.caller_uid = 1000;
  facts.cgroup_places.missing.emplace(
      "memory", Error{ErrorKind::kUnavailable, error, directory + " cannot be written", {}, {}});
  if (version != 0) facts.own_cgroups["memory"] = {version, "/sys/fs/cgroup", directory, "/a/b"};
  return facts;
}

HostFinding only_finding(const Facts& facts, const policy::Policy& policy) {
  std::vector<HostFinding> found = find(facts, policy);
  REQUIRE(found.size() == 1);
  CHECK(found.front().id == "no-cgroup");
  return found.front();
}

TEST_CASE("cgroups that cannot be had are missing or weaker as the limits say") {
  const Facts facts = without_cgroups(1, EACCES, "/sys/fs/cgroup/memory/a");
  CHECK(ids(facts, agent()).empty());
  CHECK(ids(facts, agent(R"(,"limits":{"memory":"1GiB","enforce":"prefer"})")) ==
        Ids{"no-cgroup~"});
  CHECK(ids(facts, agent(R"(,"limits":{"memory":"1GiB","enforce":"require"})")) ==
        Ids{"no-cgroup!"});
  CHECK(ids(facts, agent(R"(,"limits":{"processes":9,"enforce":"require"})")).empty());
}

TEST_CASE("each layout of cgroups has a remedy of its own, and a line that is it") {
  const policy::Policy policy = agent(R"(,"limits":{"memory":"1GiB","enforce":"prefer"})");
  struct Layout {
    int version, error;
    const char *directory, *remedy, *fix;
  };
  for (const Layout& layout : std::initializer_list<Layout>{
           {1, EACCES, "/sys/fs/cgroup/memory/a b", "below each of '/sys/fs/cgroup/memory/a b'",
            "chown -R 1000 \"$place/belljar-1000\""},
           {2, EACCES, "/sys/fs/cgroup/a/b", "systemd-run --user --scope -p Delegate=yes",
            "Delegate=yes"},
           {2, EBUSY, "/sys/fs/cgroup/a/b", "DelegateSubgroup=main", "DelegateSubgroup=main"},
           {2, ENOENT, "/sys/fs/cgroup/a/b", "echo '+memory' > ",
            "echo '+memory' > /sys/fs/cgroup/a/cgroup.subtree_control"},
           {2, EROFS, "/sys/fs/cgroup/a/b", "writable-cgroups=true", "writable-cgroups=true"},
           {0, ENOENT, "", "mount -t cgroup2", "mount -t cgroup2 cgroup2 /sys/fs/cgroup"}}) {
    CAPTURE(layout.remedy);
    const HostFinding found =
        only_finding(without_cgroups(layout.version, layout.error, layout.directory), policy);
    CHECK(found.evidence.find("limits.memory") != std::string::npos);
    CHECK(found.remedy.find(layout.remedy) != std::string::npos);
    CHECK(std::any_of(found.fix.begin(), found.fix.end(), [&](const std::string& line) {
      return line.find(layout.fix) != std::string::npos;
    }));
  }
}

TEST_CASE("at the top of what is mounted there is nobody above to hand controllers down") {
  const policy::Policy policy = agent(R"(,"limits":{"memory":"1GiB","enforce":"prefer"})");
  const HostFinding found = only_finding(without_cgroups(2, ENOENT, "/sys/fs/cgroup"), policy);
  CHECK(found.remedy.find("subtree_control") == std::string::npos);
  CHECK(found.fix.empty());
}

TEST_CASE("a hard limit of open files that is too low for the sessions is a note") {
  Facts facts = good();
  facts.hard_limits["nofile"] = 1024;
  facts.sessions = 900;
  CHECK(ids(facts, agent()) == Ids{"nofile-max"});
  facts.hard_limits["nofile"] = 65536;
  CHECK(ids(facts, agent()).empty());
}

TEST_CASE("a workspace root with nosuid is a note, and nothing has to be changed") {
  Facts facts = good();
  facts.root_nosuid = true;
  CHECK(ids(facts, agent()) == Ids{"workspace-nosuid"});
}

TEST_CASE("sessions by processes and memory are counted against the container's limits") {
  Facts facts = good();
  facts.sessions = 8;
  facts.pids_max = 8 * 64;
  CHECK(ids(facts, agent()).empty());
  facts.pids_max = 8 * 64 - 1;
  CHECK(ids(facts, agent()) == Ids{"pids-max"});
  facts.pids_max.reset();
  facts.memory_max = (8ULL << 30) - 1;
  const std::string each = R"(,"limits":{"memory":"1GiB"})";
  CHECK(ids(facts, agent(each)) == Ids{"memory-max"});
  facts.memory_max = 8ULL << 30;
  CHECK(ids(facts, agent(each)).empty());
}

TEST_CASE("a hard limit stops only who cannot raise it") {
  Facts facts = good();
  facts.hard_limits["nofile"] = 1023;
  CHECK(ids(facts, agent()) == Ids{"hard-limit!"});
  facts.holds_resources = true;
  CHECK(ids(facts, agent()).empty());
}

TEST_CASE("what a private network needs is a matter of policies that have one") {
  Facts facts = good();
  facts.pasta = facts.way_out = false;
  facts.tries.tun = EACCES;
  facts.tries.nftables = EPROTONOSUPPORT;
  CHECK(ids(facts, agent()).empty());
  const policy::Policy shell = load(R"({"version":1,"extends":["builtin:shell@1"]})");
  CHECK(ids(facts, shell) == Ids{"no-pasta~", "tun-closed~", "no-nftables~", "no-way-out~"});
  const policy::Policy install = load(R"({"version":1,"extends":["builtin:install@1"]})");
  CHECK(ids(facts, install) == Ids{"no-pasta!", "tun-closed!", "no-nftables!", "no-way-out!"});
}

TEST_CASE("a private network whose rules or ports would be lost is not made do without") {
  Facts facts = good();
  facts.tries.tun = ENOENT;
  const auto shell = [](const std::string& network) {
    return load(R"({"version":1,"extends":["builtin:shell@1"],"network":)" + network + "}");
  };
  CHECK(ids(facts, shell(R"({"publish":{"127.0.0.1:8080":80}})")) == Ids{"no-tun!"});
  CHECK(ids(facts, shell(R"({"only":{}})")) == Ids{"no-tun!"});
  CHECK(find(facts, shell("{}")).front().remedy.find("devices") != std::string::npos);
}

TEST_CASE("a pasta is told to be old by what its help does not name") {
  Facts facts = good();
  facts.pasta_lacks = {"--netns", "--dns-forward"};
  const policy::Policy install = load(R"({"version":1,"extends":["builtin:install@1"]})");
  CHECK(ids(facts, install) == Ids{"old-pasta!"});
  CHECK(find(facts, install).front().evidence.find("--netns, --dns-forward") != std::string::npos);
  facts.pasta = false;
  CHECK(ids(facts, install) == Ids{"no-pasta!"});
}

TEST_CASE("emulated kernels are known by what they call themselves") {
  Facts facts = good();
  facts.kernel = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016";
  CHECK(ids(facts, agent()) == Ids{"emulated-kernel"});
  facts.kernel = "Linux version 4.4.0-19041-Microsoft";
  CHECK(ids(facts, agent()) == Ids{"emulated-kernel"});
  facts.kernel = "Linux version 5.15.90.1-microsoft-standard-WSL2";
  CHECK(ids(facts, agent()).empty());
}

TEST_CASE("the back end is the older one when either family of calls is missing") {
  Facts facts = good();
  facts.tries.mount_tree = EPERM;
  CHECK(back_end_text(facts) == "legacy: open_tree: EPERM");
  facts.tries.clone3 = ENOSYS;
  CHECK(back_end_text(facts) == "legacy: clone3: ENOSYS");
}

TEST_CASE("the causes that a test of a policy can expect are those of the record") {
  std::set<std::string_view> words(policy::kCauses.begin(), policy::kCauses.end());
  for (int cause = 0; cause <= static_cast<int>(Cause::kLost); ++cause) {
    CAPTURE(cause);
    CHECK(words.erase(cause_name(static_cast<Cause>(cause))) == 1);
  }
  CHECK(words.empty());
}

}  // namespace
}  // namespace belljar::launcher
