// Sizes, durations, octal modes, paths, bytes within JSON, and suggestions.
#include "policy/units.hpp"

#include <array>
#include <chrono>
#include <string>

#include "loading.hpp"
#include "policy/base64.hpp"
#include "policy/quote.hpp"
#include "policy/suggest.hpp"

namespace belljar::policy {
namespace {

using testing::contains;

std::string size_error(std::string_view text) {
  const auto size = parse_size(text);
  return size ? std::string() : size.error();
}

std::string duration_error(std::string_view text) {
  const auto duration = parse_duration(text);
  return duration ? std::string() : duration.error();
}

TEST_CASE("sizes are whole numbers of binary units") {
  CHECK(parse_size("0B") == 0U);
  CHECK(parse_size("64KiB") == 65536U);
  CHECK(parse_size("512MiB") == 536870912U);
  CHECK(parse_size("4GiB") == 4294967296U);
  CHECK(parse_size("1TiB") == 1099511627776U);
  CHECK(parse_size("18446744073709551615B") == 18446744073709551615U);
}

TEST_CASE("decimal units are refused with the binary one that was meant") {
  CHECK(size_error("512MB") ==
        "expected a size such as \"512MiB\", got the string \"512MB\"; the unit is MiB: write "
        "\"512MiB\"");
  for (const char* text : {"1kB", "1KB", "1k", "1K", "1Kib", "1kib"}) {
    CHECK(contains(size_error(text), "write \"1KiB\""));
  }
  CHECK(contains(size_error("2G"), "write \"2GiB\""));
  CHECK(contains(size_error("2tb"), "write \"2TiB\""));
}

TEST_CASE("sizes without a unit, fractions and other texts are refused") {
  CHECK(contains(size_error("512"), "write \"512B\" if bytes are meant"));
  CHECK(contains(size_error("1.5GiB"), "sizes are whole numbers"));
  CHECK(contains(size_error("5PiB"), "the units are B, KiB, MiB, GiB and TiB"));
  for (const char* text : {"", "MiB", "-1MiB", "+1MiB", " 1MiB", "0x10B", "lots"}) {
    CHECK(contains(size_error(text), "expected a size such as \"512MiB\", got the string"));
  }
  for (const char* text : {"1 MiB", "1MiB ", "1MiBB"}) CHECK(size_error(text) != "");
}

TEST_CASE("sizes beyond 64 bits are refused") {
  CHECK(parse_size("16777215TiB").has_value());
  CHECK(size_error("16777216TiB") == "the size \"16777216TiB\" does not fit into 64 bits");
  CHECK(size_error("18446744073709551616B") ==
        "the size \"18446744073709551616B\" does not fit into 64 bits");
}

TEST_CASE("durations are whole numbers with a unit, up to a year") {
  using std::chrono::milliseconds;
  CHECK(parse_duration("500ms") == milliseconds(500));
  CHECK(parse_duration("30s") == milliseconds(30'000));
  CHECK(parse_duration("15m") == milliseconds(900'000));
  CHECK(parse_duration("2h") == milliseconds(7'200'000));
  CHECK(parse_duration("365d") == milliseconds(std::int64_t{365} * 86'400'000));
  CHECK(duration_error("366d") == "the duration \"366d\" is longer than 365d");
  CHECK(duration_error("99999999999999999999d") ==
        "the duration \"99999999999999999999d\" is longer than 365d");
  CHECK(contains(duration_error("30"), "write \"30s\" if seconds are meant"));
  CHECK(contains(duration_error("1.5h"), "durations are whole numbers"));
  CHECK(contains(duration_error("5sec"), "the units are ms, s, m, h and d"));
  for (const char* text : {"", "s", "-5s", " 5s", "soon"}) {
    CHECK(contains(duration_error(text), "expected a duration such as \"30s\""));
  }
}

TEST_CASE("octal modes are digits up to the limit") {
  CHECK(parse_octal("022", 0777) == 022U);
  CHECK(parse_octal("7", 0777) == 7U);
  CHECK(parse_octal("1777", 07777) == 01777U);
  for (const char* text : {"", "8", "1777", "0o22", "-1", "00022", "22 "}) {
    CHECK_FALSE(parse_octal(text, 0777).has_value());
  }
}

TEST_CASE("paths are normalised") {
  CHECK(normalise_path("/") == "/");
  CHECK(normalise_path("//") == "/");
  CHECK(normalise_path("/a//b/./c/") == "/a/b/c");
  CHECK(normalise_path("/a/..b/c..") == "/a/..b/c..");
}

TEST_CASE("relative, climbing and overlong paths are refused") {
  CHECK(normalise_path("").error() == "expected an absolute path such as \"/work\", got \"\"");
  CHECK(normalise_path("a/b").error() ==
        "expected an absolute path such as \"/work\", got \"a/b\"");
  CHECK(normalise_path("/a/../b").error() == "\"..\" is not allowed in a path: \"/a/../b\"");
  CHECK(normalise_path("/" + std::string(255, 'a')).has_value());
  CHECK(contains(normalise_path("/" + std::string(256, 'a')).error(), "longer than 255 bytes"));
  std::string path;
  while (path.size() < 4000) path += "/" + std::string(99, 'a');
  CHECK(normalise_path(path + "/" + std::string(94, 'b')).has_value());
  CHECK(normalise_path(path + "/" + std::string(95, 'b')).error() ==
        "the path is longer than 4095 bytes");
}

TEST_CASE("a suggestion is near, and absent when nothing is") {
  constexpr std::array<std::string_view, 3> kNames{"readonly", "source", "as"};
  CHECK(nearest("readony", kNames) == "readonly");
  CHECK(nearest("raedonly", kNames) == "readonly");
  CHECK(nearest("sourcepath", kNames) == "");
  CHECK(nearest("x", kNames) == "");
  CHECK(nearest(std::string(100000, 'r'), kNames) == "");
  CHECK(with_suggestion("unknown key", "zzzzz", kNames) ==
        "unknown key (one of: readonly, source, as)");
}

TEST_CASE("messages cannot send control sequences to a terminal and shorten long values") {
  CHECK(in_quotes("a\x1b[31m\x7f\xc2\x9b") == "\"a\\u001b[31m\\u007f\\u009b\"");
  CHECK(in_quotes(std::string(99, 'a') + "\xc3\xa9" + "bc") ==
        "\"" + std::string(99, 'a') + "\"...");
}

TEST_CASE("members are written as names or in brackets") {
  CHECK(member_path("limits.rlimits", "nofile") == "limits.rlimits.nofile");
  CHECK(member_path("filesystem.mounts", "/work") == "filesystem.mounts[\"/work\"]");
  CHECK(member_path("filesystem.mounts", "/a\"b\n") == "filesystem.mounts[\"/a\\\"b\\n\"]");
  CHECK(member_path("env.set", "") == "env.set[\"\"]");
  CHECK(member_path("env.set", "9A") == "env.set[\"9A\"]");
}

TEST_CASE("bytes within JSON are one text and no other") {
  for (const std::string bytes : {"", "f", "fo", "foo", "foob", "\xff\xfe\xfd"})
    CHECK(decode_base64(base64(bytes)) == bytes);
  CHECK(base64("foob") == "Zm9vYg==");
  for (const char* text : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "=m9v", "Zm9v\n", "Zm==Zm9v", "===="})
    CHECK_MESSAGE(!decode_base64(text), text);
}

}  // namespace
}  // namespace belljar::policy
