// The launch service's readers: messages, pools, tars.
#include <doctest/doctest.h>

#include <string>

#include "launcher/service/message.hpp"
#include "launcher/service/pool.hpp"
#include "launcher/service/served_policies.hpp"
#include "launcher/service/tar.hpp"

using namespace belljar::service;

namespace {

std::string refusal_of(std::string_view text) {
  const auto request = read_request(text);
  if (request) return "taken";
  return request.error().id ? request.error().fault.message : "the end";
}

std::string overlap_of(std::uint64_t first, std::uint64_t last, const Neighbours& neighbours) {
  const auto checked = check_pool(first, last, neighbours);
  return checked ? "" : checked.error().what;
}

}  // namespace

TEST_CASE("a request is read into what it asks for") {
  const auto request = read_request(
      R"({"id":7,"do":"write","workspace":"w-1","path":"a/b","mode":"0640","parents":true})");
  REQUIRE(request.has_value());
  CHECK(request->id == 7);
  const auto& write = std::get<Write>(request->demand);
  CHECK(write.workspace == "w-1");
  CHECK(write.path == "a/b");
  CHECK(write.mode == 0640);
  CHECK(write.parents);
  CHECK(write.if_match.empty());
  CHECK(descriptors_of(request->demand) == 1);
}

TEST_CASE("without an id there is nobody to answer") {
  for (const char* text : {"", "7", "[]", "{}", R"({"do":"hello"})", R"({"id":"7","do":"hello"})",
                           R"({"id":-1})", R"({"id":1.0})", R"({"id":1,"do":"hello"} 2)"})
    CHECK_MESSAGE(refusal_of(text) == "the end", text);
  CHECK(refusal_of(R"({"id":1,"do":"hello"})" + std::string(kLargestMessage, ' ')) == "the end");
}

TEST_CASE("what a request does not have, it must not have") {
  CHECK(refusal_of(R"({"id":1,"do":"hello","x":1})").find("\"x\": unknown") == 0);
  CHECK(refusal_of(R"({"id":1,"do":"remove"})").find("workspace: is missing") == 0);
  CHECK(refusal_of(R"({"id":1,"do":"sweep","uid":4294967295})").find("uid: expected") == 0);
  CHECK(refusal_of(R"({"id":1,"do":"open","workspace":"w","path":"a","path_base64":"YQ=="})") !=
        "taken");
}

TEST_CASE("a path stays where it is") {
  for (const char* path : {"a", "a/b", ".a", "a..", "...", "a b\n"})
    CHECK_MESSAGE(is_inner_path(path), path);
  for (const char* path : {"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/..", "a/./b"})
    CHECK_MESSAGE(!is_inner_path(path), path);
  CHECK_FALSE(is_inner_path(std::string("a\0b", 3)));
  CHECK(is_inner_path(std::string(255, 'x')));
  CHECK_FALSE(is_inner_path(std::string(256, 'x')));
}

TEST_CASE("a pool that somebody else has a uid of is refused, and says who it is") {
  Neighbours host;
  host.passwd =
      "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/:/bin/sh\nhigh:x:71000:1::/:/bin/sh\n";
  host.group = "users:x:72000:ada\n";
  host.subuid = "ada:100000:65536\n# a comment\nbroken:1\n";
  host.subgid = "ada:300000:10\n";
  host.processes = {{4711, "redis", {80000, 80000, 80000, 80000}}};
  CHECK(overlap_of(70000, 70999, host).empty());
  CHECK(overlap_of(20000, 20005, host).empty());
  CHECK(overlap_of(70000, 71000, host).find("the user high") != std::string::npos);
  CHECK(overlap_of(900, 1000, host).find("the user ada") != std::string::npos);
  CHECK(overlap_of(72000, 72001, host).find("the group users") != std::string::npos);
  CHECK(overlap_of(165535, 165535, host).find("the range of ada in /etc/subuid") !=
        std::string::npos);
  CHECK(overlap_of(165536, 165536, host).empty());
  CHECK(overlap_of(300009, 300010, host).find("/etc/subgid") != std::string::npos);
  CHECK(overlap_of(61000, 61184, host).find("systemd") != std::string::npos);
  CHECK(overlap_of(65534, 65534, host).find("nobody") != std::string::npos);
  CHECK(overlap_of(79990, 80000, host).find("process 4711 (redis)") != std::string::npos);
}

TEST_CASE("the pool is what it says, and without privileges it is the service's own uid") {
  Pool pool{true, 70000, 5, 0, 0};
  CHECK(pool.holds(70000));
  CHECK(pool.holds(70004));
  CHECK_FALSE(pool.holds(70005));
  CHECK_FALSE(pool.holds(69999));
  CHECK_FALSE(pool.holds(0));
  CHECK(pool.text() == "70000-70004");
  pool.privileged = false;
  pool.own_uid = 1000;
  CHECK(pool.holds(1000));
  CHECK_FALSE(pool.holds(70000));
}

TEST_CASE("a setting of a launch says nothing about who the session is") {
  CHECK(check_setting("limits.wall_time=5s"));
  CHECK(check_setting("filesystem.mounts[\"/a=b\"].readonly=true"));
  for (const char* setting :
       {"identity.uid=0", "[identity].uid=0", "[\"identity\"].uid=0", "namespaces.pid=shared",
        "capabilities=[]", "io.tty=new", "extends=[]", "final=[]", "report={}", "tests=[]",
        "vars={}", "filesystem.workspace.path=/", "filesystem[workspace]=null"})
    CHECK_MESSAGE(!check_setting(setting), setting);
}

TEST_CASE("what is written as a tar is read as the same") {
  TarEntry entry;
  entry.path = std::string(150, 'n') + "/" + std::string(200, 'm');
  entry.mode = 0751;
  entry.size = std::uint64_t{9} << 30;
  entry.modified = 1700000000;
  const std::string text = tar_header(entry);
  REQUIRE(text.size() % kTarBlock == 0);
  const auto first = read_tar_header(text.substr(0, kTarBlock));
  REQUIRE(first.has_value());
  CHECK(first->kind == TarEntry::Kind::kExtended);
  const auto records = read_tar_records(text.substr(kTarBlock, first->size));
  REQUIRE(records.has_value());
  CHECK(records->path == entry.path);
  CHECK(records->size == entry.size);
  const auto last = read_tar_header(text.substr(text.size() - kTarBlock));
  REQUIRE(last.has_value());
  CHECK(last->mode == entry.mode);
  CHECK(last->modified == entry.modified);
}

TEST_CASE("records of a tar count their own length") {
  // 10 and 100 bytes are where a digit is added.
  for (std::size_t length = 1; length < 120; ++length) {
    TarEntry entry;
    entry.path = std::string(100 + length, 'p');
    const std::string text = tar_header(entry);
    const auto first = read_tar_header(text.substr(0, kTarBlock));
    REQUIRE(first.has_value());
    const auto records = read_tar_records(text.substr(kTarBlock, first->size));
    REQUIRE(records.has_value());
    CHECK(records->path == entry.path);
  }
  for (const char* text : {"x", "5", "5 ", "0 a=b\n", "99 a=b\n", "6 a=b\n7", "6 a=bx", "5 ab\n"})
    CHECK_MESSAGE(!read_tar_records(text), text);
}
