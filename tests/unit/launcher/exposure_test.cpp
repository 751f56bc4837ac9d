// The exposure report on a made tree. Kinds and changes: tests/sandbox/test_exposure.py.
#include "launcher/exposure.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "planning.hpp"

using namespace belljar::launcher;

namespace {

/// A directory of its own with `count` files that are known to hold secrets.
class Tree {
 public:
  explicit Tree(int count) {
    std::string name = "/tmp/belljar-exposure-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
    for (int i = 0; i < count; ++i) {
      const std::filesystem::path below = path / std::to_string(i);
      std::filesystem::create_directory(below);
      std::ofstream(below / ".netrc") << "x";
    }
  }
  ~Tree() { std::filesystem::remove_all(path); }

  std::filesystem::path path;
};

Exposure expose(const Tree& tree, const ExposureBounds& bounds) {
  const auto policy = test::policy_of(
      R"({"version": 1, "identity": {"uid": )" + std::to_string(geteuid()) + R"(, "gid": )" +
      std::to_string(getegid()) + R"(}, "filesystem": {"root": "empty", "mounts": {
          "/data": {"type": "bind", "source": ")" +
      tree.path.string() + R"("}}}})");
  Host host = test::plain_host();
  host.uid = geteuid();
  host.gid = getegid();
  const Plan plan = test::plan_of(policy, host);
  auto found = find_exposure(plan, policy, host, bounds);
  REQUIRE(found.has_value());
  return *found;
}

}  // namespace

TEST_CASE("a report without a bound that was met says that nothing is left out") {
  const Tree tree(5);
  const Exposure found = expose(tree, {});
  CHECK(found.findings.size() == 5);
  CHECK(found.entries == 10);
  CHECK(found.not_looked_at.empty());
  CHECK(found.findings.front().what == "/data/0/.netrc");
}

TEST_CASE("a walk that stops says where the bound was") {
  const Tree tree(5);
  const Exposure few = expose(tree, {.entries = 4});
  CHECK(few.findings.size() < 5);
  REQUIRE(few.not_looked_at.size() == 1);
  CHECK(few.not_looked_at.front() == "the rest: more than 4 entries");
  const Exposure found = expose(tree, {.findings = 2});
  CHECK(found.findings.size() == 2);
  CHECK(found.not_looked_at == std::vector<std::string>{"the rest: more than 2 findings"});
}

TEST_CASE("a walk that takes too long ends") {
  const Tree tree(300);
  const Exposure found = expose(tree, {.time = std::chrono::milliseconds(0)});
  CHECK(found.entries < 600);
  CHECK(found.not_looked_at == std::vector<std::string>{"the rest: it took more than 0 ms"});
}
