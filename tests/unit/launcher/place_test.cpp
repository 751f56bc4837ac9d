// Where a path is in its file system, by the text of mountinfo.
#include "launcher/sys/place.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace belljar;

namespace {

constexpr const char* kMounts =
    "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "32 21 8:2 / /srv rw,relatime shared:9 - ext4 /dev/sda2 rw\n"
    "33 21 8:2 /work/run\\0401 /mnt/bound rw - ext4 /dev/sda2 rw\n"
    "34 32 0:40 / /srv/inner rw - tmpfs tmpfs rw\n";

sys::Place at(std::uint64_t mount, const std::string& path) {
  const auto place = sys::place_in(kMounts, mount, path);
  REQUIRE(place);
  return *place;
}

}  // namespace

TEST_CASE("a bind mount leads to the place that it is of") {
  CHECK(at(32, "/srv/work/run 1/src").path == "/work/run 1/src");
  CHECK(at(33, "/mnt/bound/src").path == "/work/run 1/src");
  CHECK(at(33, "/mnt/bound/src").device == "8:2");
  CHECK(at(33, "/mnt/bound").path == "/work/run 1");
  CHECK(at(32, "/srv").path == "/");
  CHECK(at(21, "/").path == "/");
  CHECK(at(21, "/etc").path == "/etc");
}

TEST_CASE("places overlap in one file system, at whole names") {
  CHECK(sys::overlap(at(33, "/mnt/bound"), at(32, "/srv/work/run 1/src")));
  CHECK(sys::overlap(at(32, "/srv/work"), at(33, "/mnt/bound/src")));
  CHECK(sys::overlap(at(32, "/srv"), at(33, "/mnt/bound")));
  CHECK_FALSE(sys::overlap(at(33, "/mnt/bound"), at(32, "/srv/work/run 10")));
  CHECK_FALSE(sys::overlap(at(32, "/srv"), at(34, "/srv/inner")));
  CHECK_FALSE(sys::overlap(at(21, "/"), at(32, "/srv")));
}

TEST_CASE("what is below no mount of the table has no place") {
  CHECK_FALSE(sys::place_in(kMounts, 99, "/srv"));
  CHECK_FALSE(sys::place_in(kMounts, 33, "/mnt/boundary"));
  CHECK_FALSE(sys::place_in("", 1, "/"));
}
