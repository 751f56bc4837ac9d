// Cgroups where this machine has none of the kind: layouts as text, a tree of plain files that
// looks like version 2, and the kernel's own version 2 for what it can do without controllers.
#include "launcher/sys/cgroup.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/cgroups.hpp"
#include "planning.hpp"

using namespace belljar;
using namespace belljar::launcher::test;
namespace fs = std::filesystem;

namespace {

constexpr const char* kHybridMounts =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr const char* kHybridMembership = "5:cpu,cpuacct:/user\n4:memory:/a/b\n0::/c\n";

/// A directory that looks like a hierarchy of version 2.
class FakeTree {
 public:
  FakeTree() {
    std::string pattern = "/tmp/belljar-cgroup-XXXXXX";
    root = mkdtemp(pattern.data());
    add("", "memory pids", "");
  }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;
  ~FakeTree() { fs::remove_all(root); }

  void add(const std::string& path, const std::string& controllers, const std::string& below,
           const std::string& processes = "") const {
    fs::create_directories(root + path);
    write(path + "/cgroup.controllers", controllers + "\n");
    write(path + "/cgroup.subtree_control", below + "\n");
    write(path + "/cgroup.procs", processes);
    write(path + "/cgroup.type", "domain\n");
  }
  void write(const std::string& path, const std::string& text) const {
    std::ofstream(root + path) << text;
  }
  [[nodiscard]] std::string read(const std::string& path) const {
    std::ifstream file(root + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] sys::CgroupPlaces places(const std::string& own,
                                         const std::vector<std::string>& wanted) const {
    return sys::find_cgroup_places("0::" + own + "\n", "1 0 0:1 / " + root + " rw - cgroup2 x rw\n",
                                   wanted, [](const std::string&) { return true; });
  }
  std::string root;
};

Error refusal_at(const sys::CgroupPlaces& places, const std::string& controller) {
  REQUIRE(places.serving(controller) == nullptr);
  REQUIRE(places.missing.contains(controller));
  return places.missing.at(controller);
}

}  // namespace

TEST_CASE("each controller's own cgroup is found, whichever version serves it") {
  const auto memory = sys::find_own_cgroup(kHybridMembership, kHybridMounts, "memory");
  REQUIRE(memory);
  CHECK(memory->version == 1);
  CHECK(memory->directory == "/sys/fs/cgroup/memory/a/b");
  const auto cpu = sys::find_own_cgroup(kHybridMembership, kHybridMounts, "cpu");
  REQUIRE(cpu);
  CHECK(cpu->directory == "/sys/fs/cgroup/cpu,cpuacct/user");
  const auto pids = sys::find_own_cgroup(kHybridMembership, kHybridMounts, "pids");
  REQUIRE(pids);
  CHECK(pids->version == 2);
  CHECK(pids->directory == "/sys/fs/cgroup/unified/c");
}

TEST_CASE("in a container the mount may begin at its own cgroup, or show none of it") {
  const auto find = [](const char* path, const char* root) {
    return sys::find_own_cgroup(
        std::string("0::") + path + "\n",
        std::string("1 0 0:1 ") + root + " /my\\040groups rw - cgroup2 x rw\n", "memory");
  };
  CHECK(find("/docker/1", "/docker/1")->directory == "/my groups");
  CHECK(find("/docker/1/x", "/docker/1")->directory == "/my groups/x");
  CHECK(find("/", "/")->directory == "/my groups");
  CHECK_FALSE(find("/docker/12", "/docker/1"));
  CHECK_FALSE(find("/../2", "/"));
  CHECK_FALSE(sys::find_own_cgroup("", "", "memory"));
}

TEST_CASE("v2: belljar alone in a delegated cgroup makes a leaf for itself") {
  const FakeTree tree;
  tree.add("/scope", "memory pids", "", std::to_string(getpid()) + "\n");
  const sys::CgroupPlaces places = tree.places("/scope", {"memory", "pids", "cpu"});
  REQUIRE(places.serving("memory") != nullptr);
  CHECK(places.serving("memory")->needs_leaf);
  CHECK(places.serving("memory") == places.serving("pids"));
  CHECK(refusal_at(places, "cpu").what.find("was not given the controller cpu") !=
        std::string::npos);
}

TEST_CASE("v2: beside other processes it takes the one above when that was handed over") {
  const FakeTree tree;
  tree.add("/unit", "memory", "memory");
  tree.add("/unit/main", "memory", "", "1\n2\n");
  const sys::CgroupPlaces places = tree.places("/unit/main", {"memory"});
  const sys::CgroupParent* parent = places.serving("memory");
  REQUIRE(parent != nullptr);
  CHECK_FALSE(parent->needs_leaf);
  CHECK(parent->directory == tree.root + "/unit");
  CHECK(parent->path == "/unit");
  CHECK(parent->home == tree.root + "/unit/main");
}

TEST_CASE("v2: without a place the reason is told") {
  const FakeTree tree;
  tree.write("/cgroup.controllers", "\n");
  tree.add("/busy", "memory", "", "1\n2\n");
  CHECK(refusal_at(tree.places("/busy", {"memory"}), "memory").sys_errno == EBUSY);
  tree.add("/bare", "", "", "1\n");
  CHECK(refusal_at(tree.places("/bare", {"memory"}), "memory").sys_errno == ENOENT);
}

TEST_CASE("v2: a limit is written and read back, and a difference refuses") {
  const FakeTree tree;
  tree.add("/unit", "memory pids", "memory");
  tree.add("/unit/main", "memory pids", "", "1\n2\n");
  const sys::CgroupPlaces places = tree.places("/unit/main", {"memory", "pids"});
  auto cgroup = sys::Cgroup::make(*places.serving("memory"), "sandbox", {"memory", "pids"});
  REQUIRE(cgroup);
  CHECK(tree.read("/unit/cgroup.subtree_control").starts_with("+pids"));
  CHECK(cgroup->set("memory.max", "67108864").error().sys_errno == ENOENT);
  for (const char* file : {"memory.max", "pids.max", "cgroup.procs", "cgroup.kill"})
    tree.write(std::string("/unit/sandbox/") + file, "");
  CHECK(cgroup->set("memory.max", "67108864"));
  CHECK(tree.read("/unit/sandbox/memory.max") == "67108864");
  CHECK(cgroup->enter());
  CHECK(tree.read("/unit/sandbox/cgroup.procs") == "0");
  CHECK(cgroup->leave());
  CHECK(tree.read("/unit/main/cgroup.procs").starts_with("0"));
  cgroup->kill();
  CHECK(tree.read("/unit/sandbox/cgroup.kill") == "1");
  CHECK(cgroup->holds("3:pids:/x\n0::/unit/sandbox\n"));
  CHECK_FALSE(cgroup->holds("0::/unit/main\n"));
  tree.write("/unit/sandbox/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n");
  CHECK(cgroup->number("memory.events", "oom_kill") == 2);
  // Whatever is written there, nothing is read back.
  fs::remove(tree.root + "/unit/sandbox/pids.max");
  fs::create_symlink("/dev/null", tree.root + "/unit/sandbox/pids.max");
  CHECK(cgroup->set("pids.max", "5").error().what.find("does not report") != std::string::npos);
  for (const auto& entry : fs::directory_iterator(tree.root + "/unit/sandbox")) fs::remove(entry);
  CHECK(cgroup->remove());
  CHECK_FALSE(fs::exists(tree.root + "/unit/sandbox"));
}

TEST_CASE("v2: a policy's limits become the files of version 2, memory as a group") {
  launcher::Host host = plain_host();
  sys::CgroupParent parent;
  parent.mount_point = "/sys/fs/cgroup";
  parent.directory = "/sys/fs/cgroup/user";
  parent.controllers = {"memory", "pids", "cpu"};
  host.cgroups.parents = {parent};
  const std::string text = texts(plan_of(
      policy_of(R"({"version":1,"limits":{"memory":"64MiB","processes":20,"cpus":1.5}})"), host));
  CHECK(text.starts_with(
      "make a cgroup in /sys/fs/cgroup/user, and start the sandbox in it\n"
      "limit memory to 64 MiB (memory.oom.group, memory.max, memory.swap.max), and read it back\n"
      "limit processes to 20 (pids.max), and read it back\n"
      "limit cpus to 1.5 (cpu.max), and read it back\n"));
}

TEST_CASE("v2: every cgroup counts processor time, with or without controllers") {
  const FakeTree tree;
  tree.add("/busy", "", "", "1\n2\n");
  const sys::CgroupPlaces alone = tree.places("/busy", {"cpuacct"});
  REQUIRE(alone.serving("cpuacct") != nullptr);
  CHECK(alone.serving("cpuacct")->directory == tree.root + "/busy");
  tree.add("/unit", "memory", "memory");
  tree.add("/unit/main", "memory", "", "1\n2\n");
  const sys::CgroupPlaces both = tree.places("/unit/main", {"memory", "cpuacct"});
  REQUIRE(both.serving("cpuacct") != nullptr);
  CHECK(both.serving("cpuacct") == both.serving("memory"));
  auto cgroup = sys::Cgroup::make(*both.serving("cpuacct"), "sandbox", {"memory", "cpuacct"});
  REQUIRE(cgroup);
  CHECK(tree.read("/unit/cgroup.subtree_control").find("cpuacct") == std::string::npos);
  tree.write("/unit/sandbox/cpu.stat", "usage_usec 2500000\nuser_usec 1\n");
  CHECK(cgroup->number("cpu.stat", "usage_usec") == 2500000);
  fs::remove(tree.root + "/unit/sandbox/cpu.stat");
  CHECK(cgroup->remove());
}

TEST_CASE("v2: processor time is counted where no controller was given") {
  const FakeTree tree;
  tree.add("/unit", "", "");
  tree.add("/unit/main", "", "", "1\n2\n");
  const sys::CgroupPlaces places = tree.places("/unit/main", {"memory", "cpuacct"});
  CHECK(refusal_at(places, "memory").sys_errno == ENOENT);
  REQUIRE(places.serving("cpuacct") != nullptr);
  CHECK(places.serving("cpuacct")->directory == tree.root + "/unit/main");
}

TEST_CASE("a cgroup whose count cannot be read is no meter of processor time") {
  const FakeTree tree;
  tree.add("/busy", "", "", "1\n2\n");
  for (const bool prefer : {false, true}) {
    launcher::Plan plan;
    launcher::Step step;
    step.side = launcher::Side::kLauncher;
    step.control = "cgroup";
    step.action = launcher::MakeCgroup{
        *tree.places("/busy", {"cpuacct"}).serving("cpuacct"), {"cpuacct"}, prefer};
    plan.steps.push_back(step);
    std::vector<launcher::Degraded> degraded;
    launcher::Cgroups cgroups;
    const auto failed = cgroups.set_up(plan, degraded);
    CHECK(failed.has_value() == !prefer);
    if (failed) CHECK(failed->error.what.find("cpu.stat") != std::string::npos);
    CHECK(degraded.size() == (prefer ? 1U : 0U));
    if (prefer) CHECK_FALSE(cgroups.cpu_time().has_value());
  }
}

TEST_CASE("v2: the kernel freezes and kills a cgroup as a whole") {
  if (geteuid() != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    // A mount namespace of its own, for a view of version 2 that is surely writable.
    std::string pattern = "/tmp/belljar-cgroup-XXXXXX";
    const char* at = mkdtemp(pattern.data());
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("cgroup2", at, "cgroup2", 0, nullptr) != 0)
      _exit(rmdir(at) == 0 ? 77 : 1);
    sys::CgroupParent parent;
    parent.mount_point = parent.directory = parent.home = at;
    parent.path = "/";
    auto cgroup = sys::Cgroup::make(parent, sys::cgroup_name(), {});
    if (!cgroup || !cgroup->enter()) _exit(2);
    const pid_t sleeper = fork();
    if (sleeper == 0) {
      if (fork() == 0) pause();
      pause();
    }
    if (!cgroup->leave()) _exit(3);
    if (!cgroup->set("cgroup.freeze", "1")) _exit(4);
    for (int i = 0; i < 1000 && cgroup->number("cgroup.events", "frozen") != 1; ++i) usleep(1000);
    if (cgroup->number("cgroup.events", "frozen") != 1) _exit(5);
    cgroup->kill();
    int status = 0;
    if (waitpid(sleeper, &status, 0) != sleeper || WTERMSIG(status) != SIGKILL) _exit(6);
    const bool removed = cgroup->remove();
    umount2(at, MNT_DETACH);
    rmdir(at);
    _exit(removed ? 0 : 7);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  const int code = WEXITSTATUS(status);
  if (code == 77) {  // A host without version 2.
    CHECK(std::getenv("BELLJAR_MUST_WORK") == nullptr);
    return;
  }
  CHECK(code == 0);
}

TEST_CASE("names tell launches apart, and a sweep leaves what is in use or not ours") {
  const std::string name = sys::cgroup_name();
  CHECK(name.starts_with("belljar-"));
  CHECK(name != sys::cgroup_name());
  const FakeTree tree;
  const std::string gone = name.substr(0, name.rfind('-', name.rfind('-') - 1)) + "-1-1";
  for (const std::string& made : {name, gone, gone + "-launcher", std::string("belljar-1-2-3-4"),
                                  std::string("belljar-x"), std::string("other")})
    fs::create_directory(tree.root + "/" + made);
  sys::sweep_cgroups(tree.root);
  CHECK(fs::exists(tree.root + "/" + name));
  CHECK_FALSE(fs::exists(tree.root + "/" + gone));
  CHECK_FALSE(fs::exists(tree.root + "/" + gone + "-launcher"));
  for (const char* kept : {"belljar-1-2-3-4", "belljar-x", "other"})
    CHECK(fs::exists(tree.root + "/" + kept));
}
