// Policies that build on files.
#include <string>

#include "loading.hpp"
#include "temporary_directory.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_of;
using testing::load;
using testing::TemporaryDirectory;

Layers file(const std::string& name) {
  Layers layers;
  layers.add(name);
  return layers;
}

std::string extending(std::string_view names, std::string_view body = {}) {
  return "{\"version\":1,\"extends\":[" + std::string(names) + "]" + std::string(body) + "}";
}

TEST_CASE("a file extends files beside it and presets, lowest first") {
  TemporaryDirectory directory;
  directory.write("low.json", R"({"version":1,"limits":{"wall_time":"1s"},"io":{"keep":[3]}})");
  directory.write("high.jsonc", "// above\n{\"version\":1,\"limits\":{\"wall_time\":\"2s\"}}");
  const std::string top =
      directory.write("top.json", extending(R"("builtin:strict@1","low.json","./high.jsonc")"));
  const Policy policy = load(file(top));
  CHECK(policy.limits.wall_time->count() == 2000);
  CHECK(policy.io.keep == std::vector<int>{3});
  CHECK(policy.limits.rlimits.at("nproc").value == 32U);
  CHECK(policy.name == "top.json");
  CHECK(policy.where("limits.wall_time") == directory.path() + "/./high.jsonc:2:36");
}

TEST_CASE("a file is relative to the one that extends it, not to where belljar runs") {
  TemporaryDirectory outer;
  TemporaryDirectory inner;
  const std::string base = outer.write("base.json", R"({"version":1,"io":{"keep":[5]}})");
  outer.write("middle.json", extending("\"base.json\""));
  const std::string top =
      inner.write("top.json", extending("\"" + outer.path() + "/middle.json\""));
  CHECK(load(file(top)).where("io.keep") == base + ":1:27");
}

TEST_CASE("mistakes in an extended file are reported at their place in it") {
  TemporaryDirectory directory;
  const std::string base = directory.write("base.json", "{\"version\":1,\n \"limitz\":{}}");
  const std::string top = directory.write("top.json", extending("\"base.json\"", ",\"nme\":1"));
  CHECK(errors_of(file(top)) == base + ":2:2: limitz: unknown key; did you mean \"limits\"?\n" +
                                    top + ":1:38: nme: unknown key; did you mean \"name\"?");
}

TEST_CASE("a file that cannot be read is reported where it is extended") {
  TemporaryDirectory directory;
  const auto error = [&](const std::string& name) {
    const std::string top = directory.write("top.json", extending("\"" + name + "\""));
    const std::string errors = errors_of(file(top));
    REQUIRE(errors.starts_with(top + ":1:25: extends[0]: "));
    return errors.substr(top.size() + std::string(":1:25: extends[0]: ").size());
  };
  CHECK(error("none.json") == "\"" + directory.path() +
                                  "/none.json\": cannot read the policy: No such file or directory "
                                  "(ENOENT)");
  CHECK(contains(error("agent@1"), "; the preset is called \"builtin:agent@1\""));
  CHECK(contains(error("."), "cannot read the policy: Is a directory (EISDIR)"));
  CHECK(contains(error("/dev/zero"), "cannot read the policy: it is no regular file"));
  CHECK(contains(error(""), "a file such as \"base.json\", got the string \"\""));
}

TEST_CASE("a FIFO does not hang the reader") {
  TemporaryDirectory directory;
  const std::string fifo = directory.write("fifo.json", "");
  REQUIRE(unlink(fifo.c_str()) == 0);
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const std::string top = directory.write("top.json", extending("\"fifo.json\""));
  CHECK(contains(errors_of(file(top)), "cannot read the policy: it is no regular file"));
}

TEST_CASE("an extended file is bounded as any other") {
  TemporaryDirectory directory;
  directory.write("big.json", std::string((1 << 20) + 1, ' '));
  const std::string top = directory.write("top.json", extending("\"big.json\""));
  CHECK(errors_of(file(top)) == directory.path() + "/big.json:1:1: the text is larger than 1 MiB");
}

TEST_CASE("a cycle of files is named, whatever a link calls them") {
  TemporaryDirectory directory;
  const std::string a = directory.write("a.json", extending("\"b.json\""));
  const std::string b = directory.write("b.json", extending("\"link.json\""));
  const std::string link = directory.write("link.json", "");
  REQUIRE(unlink(link.c_str()) == 0);
  REQUIRE(symlink("a.json", link.c_str()) == 0);
  CHECK(errors_of(file(a)) ==
        b + ":1:25: extends[0]: extends itself: " + a + " -> " + b + " -> " + link);
}

TEST_CASE("files extend at most 8 levels deep, and at most 64 in all") {
  TemporaryDirectory directory;
  std::string names;
  for (int i = 0; i < 16; ++i) {
    directory.write(
        "chain" + std::to_string(i) + ".json",
        i == 0 ? "{\"version\":1}" : extending("\"chain" + std::to_string(i - 1) + ".json\""));
    names += (i == 0 ? "" : ",") + std::string("\"chain7.json\"");
  }
  CHECK(errors_of(file(directory.path() + "/chain7.json")) == "");
  CHECK(contains(errors_of(file(directory.path() + "/chain8.json")),
                 "chain1.json:1:25: extends[0]: extends more than 8 levels deep"));
  const std::string wide = directory.write("wide.json", extending(names));
  CHECK(contains(errors_of(file(wide)), "extends more than 8 levels deep"));
  std::string flat;
  for (int i = 0; i < 16; ++i) flat += (i == 0 ? "" : ",") + std::string("\"chain3.json\"");
  CHECK(contains(errors_of(file(directory.write("flat.json", extending(flat)))),
                 "more than 64 policies in all"));
}

TEST_CASE("two files may extend the same third") {
  TemporaryDirectory directory;
  directory.write("base.json", R"({"version":1,"io":{"keep":[5]}})");
  directory.write("a.json", extending("\"base.json\""));
  directory.write("b.json", extending("\"base.json\"", R"(,"name":"b")"));
  const std::string top = directory.write("top.json", extending(R"("a.json","b.json")"));
  CHECK(load(file(top)).io.keep == std::vector<int>{5});
}

}  // namespace
}  // namespace belljar::policy
