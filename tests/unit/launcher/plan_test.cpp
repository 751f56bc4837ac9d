#include <sched.h>

#include <algorithm>

#include "planning.hpp"

using namespace belljar::launcher;
using namespace belljar::launcher::test;
using belljar::policy::Policy;

TEST_CASE("the same policy and host give the same plan") {
  const Policy policy = preset("agent@1");
  CHECK(explain(plan_of(policy, plain_host()), policy) ==
        explain(plan_of(policy, plain_host()), policy));
}

TEST_CASE("a plan with the pivot before a mount is refused as a fault of ours") {
  Plan plan = plan_of(preset("strict@1"), plain_host());
  const auto is_pivot = [](const Step& step) {
    return std::holds_alternative<PivotRoot>(step.action);
  };
  const auto pivot = std::find_if(plan.steps.begin(), plan.steps.end(), is_pivot);
  REQUIRE(pivot != plan.steps.end());
  const auto is_bind = [](const Step& step) {
    return std::holds_alternative<BindMount>(step.action);
  };
  std::iter_swap(pivot, std::find_if(plan.steps.begin(), plan.steps.end(), is_bind));
  CHECK_FALSE(validate(plan).has_value());
}

TEST_CASE("a plan whose filter is not last is refused as a fault of ours") {
  Plan plan = plan_of(preset("strict@1"), plain_host());
  const auto is_filter = [](const Step& step) {
    return std::holds_alternative<InstallFilter>(step.action);
  };
  const auto filter = std::find_if(plan.steps.begin(), plan.steps.end(), is_filter);
  REQUIRE(filter != plan.steps.end());
  std::iter_swap(filter, filter - 1);
  CHECK_FALSE(validate(plan).has_value());
}

TEST_CASE("a plan without a drop of capabilities is refused as a fault of ours") {
  Plan plan = plan_of(preset("strict@1"), plain_host());
  std::erase_if(plan.steps, [](const Step& step) {
    return std::holds_alternative<DropCapabilities>(step.action);
  });
  CHECK_FALSE(validate(plan).has_value());
}

TEST_CASE("mounts are planned parents first, whatever the order of the file") {
  const Plan plan = plan_of(policy_of(R"({"version":1,"filesystem":{"mounts":{
      "/a/b/c":{"type":"tmpfs"},"/a":{"type":"tmpfs"},"/a/b":{"type":"tmpfs"}}}})"),
                            plain_host());
  const std::string all = texts(plan);
  CHECK(all.find("tmpfs on /a (") < all.find("tmpfs on /a/b ("));
  CHECK(all.find("tmpfs on /a/b (") < all.find("tmpfs on /a/b/c ("));
}

TEST_CASE("a mount point is made only in a tmpfs of ours, never in a bind of the host") {
  const Plan plan = plan_of(policy_of(R"({"version":1,"filesystem":{"mounts":{
      "/usr":{"type":"bind","source":"/usr"},"/usr/x":{"type":"tmpfs"},"/t":{"type":"tmpfs"},
      "/t/x":{"type":"bind","source":"/opt"}}}})"),
                            plain_host());
  for (const Step& step : plan.steps) {
    if (const auto* tmpfs = std::get_if<MountTmpfs>(&step.action))
      CHECK(tmpfs->may_create == (tmpfs->target != "/usr/x"));
    if (const auto* bind = std::get_if<BindMount>(&step.action)) CHECK(bind->may_create);
  }
}

TEST_CASE("a file, directory or link inside a bind of the host is refused with its line") {
  const belljar::Error error = refusal_of(policy_of(R"({"version":1,"filesystem":{"mounts":{
      "/usr":{"type":"bind","source":"/usr"},"/usr/x":{"type":"dir"}}}})"),
                                          plain_host());
  CHECK(error.where == "filesystem.mounts[\"/usr/x\"]");
}

TEST_CASE("root's own launch maps nobody, and uid 0 only when it is written out") {
  CHECK(plan_of(preset("strict@1"), root_host()).uid == 65534);
  const Policy as_root = policy_of(R"({"version":1,"identity":{"uid":0,"gid":0}})");
  CHECK(plan_of(as_root, root_host()).uid == 0);
}

TEST_CASE("another uid is refused to a caller without the capabilities for it") {
  const belljar::Error error =
      refusal_of(policy_of(R"({"version":1,"identity":{"uid":20000}})"), plain_host());
  CHECK(error.where == "identity.uid");
  CHECK_FALSE(error.remedy.empty());
}

TEST_CASE("a numbered uid brings its own group, not the caller's") {
  const Plan plan = plan_of(policy_of(R"({"version":1,"identity":{"uid":20000}})"), root_host());
  CHECK(plan.gid == 20000);
}

TEST_CASE("a pool uid is refused outside the service") {
  CHECK(refusal_of(policy_of(R"({"version":1,"identity":{"uid":"pool"}})"), root_host()).where ==
        "identity.uid");
}

TEST_CASE("the limit of processes is refused for uid 0 of the host, which it does not bind") {
  CHECK(refusal_of(policy_of(R"({"version":1,"identity":{"uid":0,"gid":0},
                                 "limits":{"rlimits":{"nproc":10}}})"),
                   root_host())
            .where == "limits.rlimits.nproc");
}

TEST_CASE("groups that stay are named in degraded where the policy prefers, refused elsewhere") {
  Host host = plain_host();
  host.groups = {27, 44};
  const Plan plan = plan_of(preset("agent@1"), host);
  REQUIRE(plan.degraded.size() == 1);
  CHECK(plan.degraded.front().control == "identity");
  CHECK(refusal_of(preset("strict@1"), host).where == "identity.groups");
}

TEST_CASE("the top level that holds the workspace is not there, but the workspace is") {
  Host host = plain_host();
  host.current_directory = "/srv/sessions/one";
  const Plan plan = plan_of(preset("agent@1"), host);
  CHECK_FALSE(has_step(plan, "bind /srv, read-only"));
  CHECK(has_step(plan, "bind /srv/sessions/one, writable"));
}

TEST_CASE("a workspace below /usr would hide every program, and is refused") {
  Host host = plain_host();
  host.current_directory = "/usr/src/project";
  CHECK(refusal_of(preset("agent@1"), host).where == "filesystem.hide[\"@workspace\"]");
}

TEST_CASE("the current directory is no workspace when it is / or holds the home") {
  for (const char* directory : {"/", "/home", "/home/ada"}) {
    Host host = plain_host();
    host.current_directory = directory;
    CHECK(refusal_of(preset("dev@1"), host).where == "filesystem.workspace.path");
  }
}

TEST_CASE("a workspace out of the uid's reach is refused, one that it can only read is read-only") {
  Host host = root_host();
  host.workspace_access = Access::kNone;
  host.workspace_blocked_by = host.current_directory;
  CHECK(refusal_of(preset("dev@1"), host).remedy.find("chown") != std::string::npos);
  host.workspace_access = Access::kRead;
  const Plan plan = plan_of(preset("dev@1"), host);
  CHECK(has_step(plan, "bind /home/ada/project, read-only"));
  CHECK(plan.notes.size() == 1);
}

TEST_CASE("dev@1 shows toolchains of the home that PATH names, and masks their credentials") {
  Host host = plain_host();
  host.environment["PATH"] =
      "/home/ada/.cargo/bin:/home/ada/src/app/.venv/bin:/home/ada/.local/bin:/home/ada/bin:/usr/"
      "bin";
  const Plan plan = plan_of(preset("dev@1"), host);
  CHECK(has_step(plan, "bind /home/ada/.cargo, read-only, if it can be reached"));
  CHECK(has_step(plan, "bind /home/ada/src/app/.venv, read-only, if it can be reached"));
  CHECK(has_step(plan, "bind /home/ada/.local/bin, read-only, if it can be reached"));
  CHECK(has_step(plan, "bind /home/ada/bin, read-only, if it can be reached"));
  CHECK(has_step(plan, "mask /home/ada/.cargo/credentials.toml"));
  CHECK_FALSE(has_step(plan, "bind /home/ada/.local, read-only, if it can be reached"));
  CHECK_FALSE(has_step(plan, "bind /home/ada/src, read-only, if it can be reached"));
}

TEST_CASE("no spelling of PATH shows the whole home as a toolchain") {
  for (const char* entry :
       {"/home/ada", "/home/ada/", "/home/ada/.", "/home/ada//", "/home/ada/./bin/..",
        "/home/ada/bin/../..", "/home/ada/./bin/../.", "/home/./ada", "/home/ada/bin/../../ada"}) {
    Host host = plain_host();
    host.environment["PATH"] = entry;
    CAPTURE(entry);
    const std::string steps = texts(plan_of(preset("dev@1"), host));
    CHECK(steps.find("bind /home/ada, ") == std::string::npos);
    CHECK(steps.find("if it can be reached") == std::string::npos);
  }
}

TEST_CASE("a workspace or a bind that a mask covers is told with what shows it") {
  Host host = plain_host();
  host.current_directory = "/var/log/app";
  CHECK(plan_of(preset("dev@1"), host).notes ==
        std::vector<std::string>{
            "the mask of /var/log hides what is shown at /var/log/app; to see it, "
            "--set 'filesystem.mask[/var/log]=null'"});
  CHECK(plan_of(preset("dev@1"), plain_host()).notes.empty());
}

TEST_CASE("a secret of the caller's environment does not pass, and HOME is the policy's") {
  const Plan plan = plan_of(preset("agent@1"), plain_host());
  for (const std::string& entry : plan.environment)
    CHECK(entry.find("secret") == std::string::npos);
  CHECK(std::find(plan.environment.begin(), plan.environment.end(), "HOME=/home/ada/project") !=
        plan.environment.end());
}

TEST_CASE("a private network is refused until there is one") {
  CHECK(
      refusal_of(policy_of(R"({"version":1,"network":{"mode":"private"}})"), plain_host()).where ==
      "network.mode");
}

TEST_CASE("a shared network creates no network namespace") {
  const Plan shared =
      plan_of(policy_of(R"({"version":1,"network":{"mode":"shared"}})"), plain_host());
  const Plan none = plan_of(policy_of(R"({"version":1})"), plain_host());
  CHECK((find<CreateNamespaces>(shared)->flags & CLONE_NEWNET) == 0);
  CHECK((find<CreateNamespaces>(none)->flags & CLONE_NEWNET) != 0);
  CHECK(find<RaiseLoopback>(shared) == nullptr);
}

TEST_CASE("namespaces that a sandbox cannot do without are refused as shared") {
  for (const char* name : {"user", "mount", "pid"})
    CHECK(refusal_of(
              policy_of(std::string(R"({"version":1,"namespaces":{")") + name + R"(":"shared"}})"),
              plain_host())
              .where == std::string("namespaces.") + name);
}

TEST_CASE("nested user namespaces are refused where the filter would refuse them anyway") {
  CHECK(refusal_of(policy_of(R"({"version":1,"namespaces":{"nested_user":true},
                                 "syscalls":{"base":"agent@1"}})"),
                   plain_host())
            .where == "namespaces.nested_user");
}

TEST_CASE("relative entries of PATH are not searched: the payload could put programs there") {
  const Plan plan = plan_of(
      policy_of(R"({"version":1,"env":{"set":{"PATH":".:/usr/bin::bin:/bin"}}})"), plain_host());
  CHECK(find<Exec>(plan)->candidates == std::vector<std::string>{"/usr/bin/true", "/bin/true"});
}

TEST_CASE("every step that a policy line asked for names it") {
  const Policy policy = policy_of(R"({"version":1,
    "filesystem":{"mounts":{"/tmp":{"type":"tmpfs"}}},"limits":{"rlimits":{"nofile":64}}})");
  const std::string text = explain(plan_of(policy, plain_host()), policy);
  CHECK(text.find("test.json:2:29 filesystem.mounts[\"/tmp\"]") != std::string::npos);
  CHECK(text.find("limits.rlimits.nofile") != std::string::npos);
}
