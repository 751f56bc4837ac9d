// Mounts, masks, hidden directories, workspace and home.
#include <string>

#include "loading.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_in;
using testing::first_message;
using testing::load_body;

std::string mount_text(std::string_view target, std::string_view mount) {
  return "\"filesystem\":{\"mounts\":{\"" + std::string(target) + "\":" + std::string(mount) + "}}";
}

Mount mount_of(std::string_view mount) {
  return load_body(mount_text("/m", mount)).filesystem.mounts.at("/m");
}

std::string mount_error(std::string_view mount) { return first_message(mount_text("/m", mount)); }

TEST_CASE("a bind is read-only, without set-user-id programs and devices, unless it says so") {
  const Mount mount = mount_of(R"({"type":"bind","source":"/usr//lib/"})");
  CHECK(mount.source == "/usr/lib");
  CHECK(mount.readonly);
  CHECK(mount.nosuid);
  CHECK(mount.nodev);
  CHECK_FALSE(mount.noexec);
  CHECK_FALSE(mount.optional);
  CHECK_FALSE(mount_of(R"({"type":"bind","source":"/a","readonly":false})").readonly);
}

TEST_CASE("a tmpfs is writable and takes size, inodes and mode") {
  const Mount mount = mount_of(R"({"type":"tmpfs","size":"1MiB","inodes":5,"mode":"1777"})");
  CHECK_FALSE(mount.readonly);
  CHECK(mount.size == 1048576U);
  CHECK(mount.inodes == 5U);
  CHECK(mount.mode == 01777U);
}

TEST_CASE("the other types take what belongs to them") {
  const Mount proc = mount_of(R"({"type":"proc","subset":"pid","hidepid":"ptraceable",
                                  "readonly":true,"enforce":"prefer"})");
  CHECK(proc.subset == ProcSubset::kPid);
  CHECK(proc.hidepid == HidePid::kPtraceable);
  CHECK(proc.enforce == Enforce::kPrefer);
  CHECK(mount_of(R"({"type":"dev","size":"1MiB","inodes":7})").inodes == 7U);
  CHECK(mount_of(R"({"type":"file","content":""})").content.empty());
  CHECK_FALSE(mount_of(R"({"type":"file","content":"x"})").mode.has_value());
  CHECK(mount_of(R"({"type":"dir","mode":"0700"})").mode == 0700U);
  CHECK(mount_of(R"({"type":"symlink","source":"../usr/bin"})").source == "../usr/bin");
}

TEST_CASE("a mount needs a type, and what its type needs") {
  CHECK(errors_in(mount_text("/m", "{}")) ==
        "p.json:1:43: filesystem.mounts[\"/m\"]: \"type\" is required");
  CHECK(mount_error(R"({"type":"bind"})") == "\"source\" is required for a mount of type \"bind\"");
  CHECK(mount_error(R"({"type":"symlink"})") ==
        "\"source\" is required for a mount of type \"symlink\"");
  CHECK(mount_error(R"({"type":"file"})") ==
        "\"content\" is required for a mount of type \"file\"");
}

TEST_CASE("members of another type are refused") {
  CHECK(errors_in(mount_text("/m", R"({"type":"bind","source":"/a","size":"1MiB"})")) ==
        "p.json:1:72: filesystem.mounts[\"/m\"].size: \"size\" does not apply to a mount of type "
        "\"bind\"");
  const auto refused = [](std::string_view type, std::string_view member) {
    const std::string key(member.substr(1, member.find('"', 1) - 1));
    return contains(
        errors_in(mount_text(
            "/m", "{\"type\":\"" + std::string(type) + "\"," + std::string(member) + "}")),
        "\"" + key + "\" does not apply to a mount of type \"" + std::string(type) + "\"");
  };
  CHECK(refused("tmpfs", R"("source":"/a")"));
  CHECK(refused("tmpfs", R"("optional":true)"));
  CHECK(refused("tmpfs", R"("enforce":"prefer")"));
  CHECK(refused("proc", R"("lower":["/a"])"));
  CHECK(refused("bind", R"("noatime":true)"));
  CHECK(refused("overlay", R"("source":"/a")"));
  CHECK(refused("overlay", R"("optional":true)"));
  CHECK(refused("mqueue", R"("readonly":true)"));
  CHECK(refused("mqueue", R"("size":"1MiB")"));
  CHECK(refused("dev", R"("nodev":true)"));
  CHECK(refused("proc", R"("size":"1MiB")"));
  CHECK(refused("dev", R"("readonly":true)"));
  CHECK(refused("dev", R"("mode":"0755")"));
  CHECK(refused("file", R"("readonly":true)"));
  CHECK(refused("dir", R"("content":"x")"));
  CHECK(refused("symlink", R"("readonly":true)"));
  CHECK(refused("bind", R"("mode":"0755")"));
  CHECK(refused("bind", R"("enforce":"prefer")"));
}

TEST_CASE("unknown types are refused") {
  CHECK(mount_error(R"({"type":"tmfs"})") ==
        "expected \"bind\", \"tmpfs\", \"proc\", \"dev\", \"file\", \"dir\", \"symlink\", "
        "\"overlay\" or \"mqueue\", got the string \"tmfs\"; did you mean \"tmpfs\"?");
}

TEST_CASE("an overlay is writable, without set-user-id programs and devices") {
  const Mount mount = mount_of(R"({"type":"overlay","lower":["/a//","/b"],"upper":"/s/./up",
                                   "work":"/s/work","noexec":true,"noatime":true})");
  CHECK(mount.lower == std::vector<std::string>{"/a", "/b"});
  CHECK(mount.upper == "/s/up");
  CHECK(mount.work == "/s/work");
  CHECK_FALSE(mount.readonly);
  CHECK(mount.nosuid);
  CHECK(mount.nodev);
  CHECK(mount.noexec);
  CHECK(mount.noatime);
}

TEST_CASE("a temporary overlay takes size, inodes and mode, one with an upper none") {
  const Mount mount =
      mount_of(R"({"type":"overlay","lower":["/a"],"size":"1MiB","inodes":9,"mode":"0700"})");
  CHECK(mount.size == 1048576U);
  CHECK(mount.inodes == 9U);
  CHECK(mount.mode == 0700U);
  for (const char* member : {R"("size":"1MiB")", R"("inodes":9)", R"("mode":"0700")"})
    CHECK(contains(mount_error(R"({"type":"overlay","lower":["/a"],"upper":"/u","work":"/w",)" +
                               std::string(member) + "}"),
                   "does not apply to an overlay with an \"upper\" of the host"));
}

TEST_CASE("a read-only overlay, which holds no changes, takes no size, inodes or mode") {
  for (const char* layers :
       {R"("lower":["/a","/b"])", R"("lower":["/a"],"upper":"/u","work":"/w")"})
    for (const char* member : {R"("size":"1MiB")", R"("inodes":9)", R"("mode":"0700")"})
      CHECK(mount_error(R"({"type":"overlay","readonly":true,)" + std::string(layers) + "," +
                        member + "}") ==
            "does not apply to a read-only overlay, which holds no changes; null removes it");
}

TEST_CASE("upper and work come together") {
  CHECK(contains(mount_error(R"({"type":"overlay","lower":["/a"],"upper":"/u"})"),
                 "\"work\" is required beside \"upper\""));
  CHECK(mount_error(R"({"type":"overlay","lower":["/a"],"work":"/w"})") ==
        "means nothing without \"upper\"");
}

TEST_CASE("a read-only overlay needs two layers, of which upper can be one") {
  CHECK(mount_error(R"({"type":"overlay","lower":["/a"],"readonly":true})") ==
        "a read-only overlay needs two directories or more; a bind shows one");
  CHECK(mount_of(R"({"type":"overlay","lower":["/a","/b"],"readonly":true})").readonly);
  CHECK(mount_of(R"({"type":"overlay","lower":["/a"],"upper":"/u","work":"/w","readonly":true})")
            .readonly);
}

TEST_CASE("the directories of an overlay lie apart") {
  const auto refusal = [](std::string_view members) {
    return mount_error("{\"type\":\"overlay\"," + std::string(members) + "}");
  };
  CHECK(refusal(R"("lower":["/a","/a/"])") == "listed twice");
  CHECK(refusal(R"("lower":["/a","/a/b"])") ==
        "\"/a/b\" and \"/a\" lie one in the other, which an overlay cannot have");
  CHECK(contains(refusal(R"("lower":["/a"],"upper":"/a/u","work":"/w")"), "lie one in the other"));
  CHECK(contains(refusal(R"("lower":["/a/l"],"upper":"/a","work":"/w")"), "lie one in the other"));
  CHECK(contains(refusal(R"("lower":["/a"],"upper":"/u","work":"/u/w")"), "lie one in the other"));
  CHECK(contains(refusal(R"("lower":["/"],"upper":"/u","work":"/w")"), "lie one in the other"));
  CHECK(refusal(R"("lower":["/a"],"upper":"/u","work":"/u")") ==
        "is the directory \"/u\" once more");
  CHECK(mount_of(R"({"type":"overlay","lower":["/a","/ab"],"upper":"/abc","work":"/u"})").upper ==
        "/abc");
}

TEST_CASE("what an overlay writes to is no other overlay's") {
  const auto both = [](std::string_view first, std::string_view second) {
    return "\"filesystem\":{\"mounts\":{\"/o\":{\"type\":\"overlay\"," + std::string(first) +
           "},\"/p\":{\"type\":\"overlay\"," + std::string(second) + "}}}";
  };
  constexpr const char* kWritten = R"("lower":["/a"],"upper":"/u","work":"/w")";
  for (const char* other :
       {R"("lower":["/u"])", R"("lower":["/w"])", R"("lower":["/b","/u/in"])", R"("lower":["/"])",
        R"("lower":["/b"],"readonly":true,"upper":"/u","work":"/x")"})
    CHECK(contains(errors_in(both(kWritten, other)), "the overlay at \"/p\" has"));
  for (const char* other :
       {R"("lower":["/b"],"upper":"/u","work":"/x")", R"("lower":["/b"],"upper":"/x","work":"/w")",
        R"("lower":["/b"],"upper":"/w","work":"/x")",
        R"("lower":["/b"],"upper":"/u/v","work":"/x")"})
    CHECK(contains(errors_in(both(kWritten, other)), "the overlay at \"/o\" has"));
  for (const char* other : {R"("lower":["/a"])", R"("lower":["/a"],"upper":"/x","work":"/y")",
                            R"("lower":["/a","/ua"],"readonly":true)"})
    CHECK(load_body(both(kWritten, other)).filesystem.mounts.size() == 2);
}

TEST_CASE("the lower directories are one to 64 absolute paths") {
  CHECK(mount_error(R"({"type":"overlay"})") ==
        "\"lower\" is required for a mount of type \"overlay\"");
  CHECK(mount_error(R"({"type":"overlay","lower":[]})") == "at least one directory is needed");
  CHECK(contains(mount_error(R"({"type":"overlay","lower":"/a"})"), "expected an array"));
  CHECK(contains(mount_error(R"({"type":"overlay","lower":["a"]})"), "expected an absolute path"));
  CHECK(contains(mount_error(R"({"type":"overlay","lower":["/a/.."]})"), "\"..\" is not allowed"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += (i > 0 ? ",\"/l" : "\"/l") + std::to_string(i) + "\"";
  CHECK(mount_error("{\"type\":\"overlay\",\"lower\":[" + many + "]}") ==
        "at most 64 directories, got 65");
}

TEST_CASE("flags that always hold can be written out, and not be taken away") {
  const auto with = [](std::string_view type, std::string_view member) {
    const std::string lower = type == "overlay" ? R"(,"lower":["/a"])" : "";
    return "{\"type\":\"" + std::string(type) + "\"" + lower + ",\"" + std::string(member);
  };
  for (const char* type : {"overlay", "proc", "mqueue", "dev"}) {
    CAPTURE(type);
    CHECK(mount_of(with(type, R"(nosuid":true})")).nosuid);
    CHECK(contains(mount_error(with(type, R"(nosuid":false})")), "no_new_privs"));
  }
  for (const char* type : {"overlay", "proc", "mqueue", "tmpfs"}) {
    CAPTURE(type);
    CHECK(mount_of(with(type, R"(nodev":true})")).nodev);
    CHECK(contains(mount_error(with(type, R"(nodev":false})")), "the kernel opens no device"));
  }
  for (const char* type : {"proc", "mqueue"}) {
    CHECK(mount_of(with(type, R"(noexec":true})")).noexec);
    CHECK(contains(mount_error(with(type, R"(noexec":false})")), "nothing in it is a program"));
  }
  CHECK_FALSE(mount_of(R"({"type":"dev","noexec":false})").noexec);
}

TEST_CASE("message queues are those of an IPC namespace of the sandbox's own") {
  const std::string mount = mount_text("/dev/mqueue", R"({"type":"mqueue"})");
  CHECK(load_body(mount).filesystem.mounts.at("/dev/mqueue").type == MountType::kMqueue);
  CHECK(errors_in(mount + R"(,"namespaces":{"ipc":"shared"})") ==
        "p.json:1:60: filesystem.mounts[\"/dev/mqueue\"].type: would be the host's queues, because "
        "namespaces.ipc is \"shared\" (p.json:1:92); make it \"new\" or remove the mount");
}

TEST_CASE("a workspace's owner is mapped only where that is written") {
  const auto workspace = [](std::string_view members) {
    return *load_body(R"("filesystem":{"workspace":{"path":"/w")" + std::string(members) + "}}")
                .filesystem.workspace;
  };
  CHECK(workspace("").idmap == IdMapping::kNone);
  CHECK(workspace(R"(,"idmap":"owner")").idmap == IdMapping::kOwner);
  CHECK(workspace(R"(,"idmap":"owner")").enforce == Enforce::kRequire);
  CHECK(workspace(R"(,"idmap":"owner","enforce":"prefer")").enforce == Enforce::kPrefer);
  CHECK(contains(first_message(R"("filesystem":{"workspace":{"path":"/w","idmap":"ower"}})"),
                 "did you mean \"owner\"?"));
}

TEST_CASE("an unknown member is refused with the nearest name") {
  CHECK(contains(errors_in(mount_text("/work", R"({"type":"bind","source":"/a","readony":true})")),
                 "p.json:1:75: filesystem.mounts[\"/work\"].readony: unknown key; did you mean "
                 "\"readonly\"?"));
}

TEST_CASE(
    "sizes and inode counts of zero are refused, because the kernel takes them for no limit") {
  CHECK(mount_error(R"({"type":"tmpfs","size":"0B"})") ==
        "0 would mean \"no limit\" to the kernel; write a size above it");
  CHECK(mount_error(R"({"type":"dev","inodes":0})") ==
        "expected a whole number from 1 to 9223372036854775807, got the number 0");
}

TEST_CASE("modes are strings of octal digits up to 7777") {
  for (const char* bad : {"755", "\"9\"", "\"17777\"", "\"rwx\""}) {
    CHECK(contains(mount_error("{\"type\":\"dir\",\"mode\":" + std::string(bad) + "}"),
                   "expected a string of octal digits such as \"1777\", at most \"7777\", got "));
  }
}

TEST_CASE("sources of binds are absolute, those of symlinks are any text") {
  CHECK(errors_in(mount_text("/m", R"({"type":"bind","source":"usr"})")) ==
        "p.json:1:67: filesystem.mounts[\"/m\"].source: expected an absolute path such as "
        "\"/work\", got \"usr\"");
  CHECK(contains(mount_error(R"({"type":"bind","source":"/a/../b"})"), "\"..\" is not allowed"));
  CHECK(mount_error(R"({"type":"symlink","source":""})") == "expected a path, got the string \"\"");
}

TEST_CASE("targets are absolute, without \"..\", and of a length that the kernel takes") {
  const std::string tmpfs = R"({"type":"tmpfs"})";
  CHECK(errors_in(mount_text("work", tmpfs)) ==
        "p.json:1:38: filesystem.mounts.work: expected an absolute path such as \"/work\", got "
        "\"work\"");
  CHECK(contains(errors_in(mount_text("", tmpfs)), "expected an absolute path"));
  CHECK(contains(errors_in(mount_text("/a/../b", tmpfs)), "\"..\" is not allowed in a path"));
  CHECK(contains(errors_in(mount_text("/" + std::string(256, 'a'), tmpfs)), "255 bytes"));
  std::string longest;
  while (longest.size() < 4096) longest += "/" + std::string(200, 'a');
  CHECK(contains(errors_in(mount_text(longest, tmpfs)), "longer than 4095 bytes"));
}

TEST_CASE("targets are normalised, and two that become the same are refused") {
  const std::string tmpfs = R"({"type":"tmpfs"})";
  const Policy policy = load_body(mount_text("//a/./b/", tmpfs));
  CHECK(policy.filesystem.mounts.begin()->first == "/a/b");
  CHECK(errors_in("\"filesystem\":{\"mounts\":{\"/a\":" + tmpfs + ",\"/a/\":" + tmpfs + "}}") ==
        "p.json:1:60: filesystem.mounts[\"/a\"]: the same target twice; first at p.json:1:38");
  CHECK(errors_in(R"("filesystem":{"mask":{"/b":"x","//b":"y"}})") ==
        "p.json:1:45: filesystem.mask[\"/b\"]: the same target twice; first at p.json:1:36");
}

TEST_CASE("only a bind can be at the root") {
  CHECK(load_body(mount_text("/", R"({"type":"bind","source":"/"})")).filesystem.mounts.size() ==
        1U);
  CHECK(errors_in(mount_text("/", R"({"type":"tmpfs"})")) ==
        "p.json:1:38: filesystem.mounts[\"/\"]: only a bind can be mounted at \"/\"");
}

TEST_CASE("masks have absolute paths and reasons") {
  CHECK(load_body(R"("filesystem":{"mask":{"/a/":"why"}})").filesystem.mask.at("/a") == "why");
  CHECK(errors_in(R"("filesystem":{"mask":{"/a":true,"b":"x","/":"all"}})") ==
        "p.json:1:41: filesystem.mask[\"/a\"]: expected a string that says why it is not shown, "
        "got true\n"
        "p.json:1:46: filesystem.mask.b: expected an absolute path such as \"/work\", got \"b\"\n"
        "p.json:1:54: filesystem.mask[\"/\"]: \"/\" itself cannot be masked");
}

TEST_CASE("hidden directories are at the top level or computed") {
  const auto hide = load_body(R"("filesystem":{"hide":{"@home":"a","@workspace":"b","/srv/":"c"}})")
                        .filesystem.hide;
  CHECK(hide.count("/srv") == 1);
  CHECK(hide.size() == 3);
  for (const char* bad : {"/", "/a/b", "srv", "@host", "/..", ""}) {
    CHECK(
        contains(errors_in("\"filesystem\":{\"hide\":{\"" + std::string(bad) + "\":\"x\"}}"),
                 "expected a top-level directory such as \"/home\", \"@workspace\" or \"@home\""));
  }
}

TEST_CASE("a workspace has a path that is absolute or \".\"") {
  const Policy policy = load_body(R"("filesystem":{"workspace":{"path":"/w/"}})");
  CHECK(policy.filesystem.workspace->path == "/w");
  CHECK_FALSE(policy.filesystem.workspace->readonly);
  CHECK(first_message(R"("filesystem":{"workspace":{"readonly":true}})") == "\"path\" is required");
  CHECK(first_message(R"("filesystem":{"workspace":{"path":"./w"}})") ==
        "expected an absolute path such as \"/work\", or \".\", got the string \"./w\"");
  CHECK(first_message(R"("filesystem":{"workspace":"."})") ==
        "expected an object such as {\"path\": \".\"}, got the string \".\"");
}

TEST_CASE("home is a word or an absolute path") {
  CHECK(load_body(R"("filesystem":{"home":"private"})").filesystem.home.kind == HomeKind::kPrivate);
  const Home home = load_body(R"("filesystem":{"home":"/h/x/"})").filesystem.home;
  CHECK(home.kind == HomeKind::kPath);
  CHECK(home.path == "/h/x");
  CHECK(first_message(R"("filesystem":{"home":"~"})") ==
        "expected \"none\", \"workspace\", \"private\" or an absolute path, got the string \"~\"");
  CHECK(contains(first_message(R"("filesystem":{"home":"/a/../b"})"), "\"..\" is not allowed"));
}

}  // namespace
}  // namespace belljar::policy
