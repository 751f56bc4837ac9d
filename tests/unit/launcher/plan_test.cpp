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

TEST_CASE("no policy leads to what bwrap's arguments alone may ask for") {
  for (const char* name :
       {"dev@1", "agent@1", "shell@1", "validator@1", "install@1", "strict@1", "bwrap@1"})
    CHECK_MESSAGE(!plan_of(preset(name), plain_host()).drop_in, name);
  const std::vector<StepAction> literal = {AwaitLauncher{},
                                           LiteralRoot{},
                                           RemountReadOnly{"/"},
                                           WriteFile{"/x", 3, 0666},
                                           BindData{"/x", 3, 0, 0600},
                                           ChangeMode{"/x", 0755},
                                           ProtectProc{"/proc"},
                                           NestUser{},
                                           JoinUser{3},
                                           CheckNoUser{},
                                           LockFile{"/x"},
                                           NewSession{},
                                           GuardInit{true, false},
                                           GuardInit{false, true},
                                           MountTmpfs{"/x", 0, 0, 0755, 0, true}};
  for (const StepAction& action : literal) {
    Plan plan = plan_of(preset("strict@1"), plain_host());
    const auto pivot =
        std::ranges::find_if(plan.steps, [](const Step& step) { return step.side == Side::kInit; });
    REQUIRE(pivot != plan.steps.end());
    const Step step = *plan.steps.insert(pivot, {Side::kInit, action, "", ""});
    CHECK_MESSAGE(!validate(plan).has_value(), step.text());
    plan.drop_in = DropIn();
    CHECK_MESSAGE(validate(plan).has_value(), step.text());
  }
}

TEST_CASE("no payload of a policy's keeps what bwrap's arguments alone may leave to it") {
  const Plan good = plan_of(preset("strict@1"), plain_host());
  const auto refused = [&good](auto change) {
    Plan plan = good;
    for (Step& step : plan.steps) change(step);
    const bool is_refused = !validate(plan).has_value();
    plan.drop_in = DropIn();
    return is_refused && validate(plan).has_value();
  };
  CHECK(refused([](Step& step) {
    if (auto* check = std::get_if<CheckPayload>(&step.action)) check->when = kCapabilitiesAsTheyAre;
  }));
  CHECK(refused([](Step& step) {
    if (auto* check = std::get_if<CheckPayload>(&step.action)) check->uid = kAnyId;
  }));
  CHECK(refused([](Step& step) {
    if (auto* check = std::get_if<CheckInit>(&step.action)) check->gid = kAnyId;
  }));
  CHECK(refused([](Step& step) {
    if (auto* filter = std::get_if<InstallFilter>(&step.action)) filter->alone = true;
  }));
  CHECK(refused([](Step& step) {
    if (auto* dev = std::get_if<MountDev>(&step.action)) dev->literal = true;
  }));
  CHECK(refused([](Step& step) { step.covers_root |= step.side == Side::kInit; }));
  CHECK(refused([](Step& step) {
    if (std::holds_alternative<CheckInit>(step.action)) step.action = SetCapabilities{1, true};
  }));
  CHECK(refused([](Step& step) {
    if (std::holds_alternative<CheckInit>(step.action)) step.action = EnterDirectory{{"/"}, true};
  }));
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

namespace {

constexpr const char* kOverlay = R"({"version":1,"filesystem":{"mounts":{"/o":{"type":"overlay",
    "lower":["/low","/high"],"upper":"/state/up","work":"/state/work"}}}})";

Host host_with(WrittenDirectory upper, WrittenDirectory work) {
  Host host = plain_host();
  host.written = {{"/state/up", upper}, {"/state/work", work}};
  return host;
}

Host mapping_host(SessionIds owner) {
  Host host = root_host();
  host.capabilities |= std::uint64_t{1} << 21;
  host.workspace_owner = owner;
  return host;
}

Policy mapped(std::string_view more = "") {
  return policy_of(R"({"version":1,"identity":{"uid":20001},"filesystem":{"workspace":
      {"path":"/w","idmap":"owner")" +
                   std::string(more) + "}}}");
}

}  // namespace

TEST_CASE("an overlay's first directory is the lowest, and its upper is held") {
  const WrittenDirectory good{true, Access::kWrite, 1};
  const Plan plan = plan_of(policy_of(kOverlay), host_with(good, good));
  CHECK(has_step(plan, "hold /state/up, /state/work for this sandbox alone"));
  CHECK(has_step(plan, "keep /high, /low from being another sandbox's upper or work"));
  CHECK(has_step(plan,
                 "mount an overlay on /o: /state/up (work in /state/work) over /high over "
                 "/low, writable"));
}

TEST_CASE("a read-only overlay writes to nothing: its upper is a layer") {
  std::string text(kOverlay);
  text.insert(text.find("\"upper\""), "\"readonly\":true,");
  const Plan plan = plan_of(policy_of(text), plain_host());
  CHECK(has_step(plan, "mount an overlay on /o: /state/up over /high over /low, read-only"));
  CHECK(has_step(plan, "keep /state/up, /high, /low from being another sandbox's upper or work"));
  CHECK_FALSE(has_step(plan, "hold /state/up, /state/work for this sandbox alone"));
}

TEST_CASE("an overlay without an upper has a bounded memory, in which mount points are made") {
  const Plan plan = plan_of(policy_of(R"({"version":1,"filesystem":{"mounts":{
      "/o":{"type":"overlay","lower":["/a"]},"/o/x":{"type":"tmpfs"},"/o/f":{"type":"file","content":""},
      "/r":{"type":"overlay","lower":["/a"],"upper":"/u","work":"/w"},"/r/x":{"type":"tmpfs"}}}})"),
                            plain_host());
  CHECK(has_step(plan,
                 "mount an overlay on /o: a tmpfs (256 MiB, 100000 files, mode 0755) over /a, "
                 "writable"));
  for (const Step& step : plan.steps)
    if (const auto* tmpfs = std::get_if<MountTmpfs>(&step.action))
      CHECK(tmpfs->may_create == (tmpfs->target == "/o/x"));
}

TEST_CASE("what an overlay cannot write to is refused before anything is mounted") {
  const WrittenDirectory good{true, Access::kWrite, 1};
  const auto refusal = [](WrittenDirectory upper, WrittenDirectory work) {
    return refusal_of(policy_of(kOverlay), host_with(upper, work));
  };
  CHECK(refusal({}, good).where == "filesystem.mounts[\"/o\"].upper");
  CHECK(refusal(good, {}).where == "filesystem.mounts[\"/o\"].work");
  CHECK(refusal(good, {true, Access::kRead, 1}).remedy.starts_with("let uid 1000 write"));
  CHECK(refusal(good, {true, Access::kWrite, 2}).what.find("another file system") !=
        std::string::npos);
}

TEST_CASE("links of root's on the way to an overlay's directories are replaced") {
  Host host = plain_host();
  host.sources = {{"/low", "/real/low"}, {"/state/up", "/real/up"}};
  const Plan plan = plan_of(policy_of(kOverlay), host);
  CHECK(has_step(plan, "hold /real/up, /state/work for this sandbox alone"));
  CHECK(has_step(plan,
                 "mount an overlay on /o: /real/up (work in /state/work) over /high over "
                 "/real/low, writable"));
}

TEST_CASE("a mask is refused below an upper that the command writes, and allowed in memory") {
  const auto masked = [](std::string_view more) {
    return policy_of(
        R"({"version":1,"filesystem":{"mask":{"/o/a/b":"x"},"mounts":{"/o":{"type":"overlay",
        "lower":["/l"])" +
        std::string(more) + "}}}}");
  };
  CHECK(refusal_of(masked(R"(,"upper":"/u","work":"/w")"), plain_host()).where ==
        "filesystem.mask[\"/o/a/b\"]");
  CHECK(has_step(plan_of(masked(""), plain_host()), "mask /o/a/b"));
}

TEST_CASE("a /dev has a place for message queues only when something is mounted there") {
  const auto dev = [](std::string_view more) {
    const Plan plan = plan_of(policy_of(R"({"version":1,"filesystem":{"mounts":{
        "/dev":{"type":"dev","noexec":true})" +
                                        std::string(more) + "}}}"),
                              plain_host());
    return *find<MountDev>(plan);
  };
  CHECK(dev(R"(,"/dev/mqueue":{"type":"mqueue"})").queues);
  CHECK_FALSE(dev("").queues);
  CHECK(dev("").shm_flags == (kNoSuid | kNoDev | kNoExec));
}

TEST_CASE("the owner of a workspace is mapped to the session by belljar") {
  const Plan plan = plan_of(mapped(), mapping_host({1000, 1001}));
  CHECK(has_step(plan, "map the owner of /w, 1000:1001, to 20001:20001"));
  CHECK(has_step(plan, "bind /w, writable, with its owner mapped"));
}

TEST_CASE("a mount in the workspace's place cannot drop what is said of the workspace") {
  const auto with = [](std::string_view workspace, std::string_view mount) {
    return policy_of(
        R"({"version":1,"identity":{"uid":20001},"filesystem":{"workspace":{"path":"/w")" +
        std::string(workspace) + R"(},"mounts":{"/w":)" + std::string(mount) + "}}}");
  };
  const Host host = mapping_host({1000, 1001});
  constexpr const char* kWritable = R"({"type":"bind","source":"/x","readonly":false})";
  constexpr const char* kReadOnly = R"({"type":"bind","source":"/x"})";
  for (const char* mount : {kWritable, kReadOnly, R"({"type":"tmpfs"})"}) {
    const belljar::Error error = refusal_of(with(R"(,"idmap":"owner")", mount), host);
    CHECK(error.where == "filesystem.workspace.idmap");
    CHECK(error.remedy.find("filesystem.mounts[\"/w\"]") != std::string::npos);
  }
  const belljar::Error error = refusal_of(with(R"(,"readonly":true)", kWritable), host);
  CHECK(error.where == "filesystem.workspace.readonly");
  CHECK(error.remedy.find("filesystem.mounts[\"/w\"]") != std::string::npos);
  CHECK(
      has_step(plan_of(with(R"(,"readonly":true)", kReadOnly), host), "bind /x on /w, read-only"));
  CHECK(has_step(plan_of(with("", kWritable), host), "bind /x on /w, writable"));
}

TEST_CASE("a session that owns its workspace needs no map") {
  const Plan plan = plan_of(mapped(), mapping_host({20001, 5}));
  CHECK((find<MapOwner>(plan) == nullptr));
  CHECK(plan.degraded.empty());
}

TEST_CASE("root's files are never a command's, and without the capability there is no map") {
  Host plain = mapping_host({1000, 1000});
  plain.capabilities = root_host().capabilities;
  CHECK(refusal_of(mapped(), plain).what.find("CAP_SYS_ADMIN") != std::string::npos);
  for (const SessionIds owner : {SessionIds{0, 1000}, SessionIds{1000, 0}}) {
    CHECK(refusal_of(mapped(), mapping_host(owner)).where == "filesystem.workspace.idmap");
    const Plan plan = plan_of(mapped(R"(,"enforce":"prefer")"), mapping_host(owner));
    CHECK(plan.degraded.size() == 1);
    CHECK((find<MapOwner>(plan) == nullptr));
  }
}
