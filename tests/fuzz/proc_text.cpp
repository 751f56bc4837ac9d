// What is read back from /proc, as text of any kind: the status that read-back compares, the mounts
// that the legacy back end settles, the lists that cgroups are found in. A parser that knows less
// says so, and never reads beyond the text.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/child/child.cpp"  // NOLINT(bugprone-suspicious-include): what has no header.
#include "launcher/sys/cgroup.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace belljar::launcher {
namespace {

/// The numbers of the first line of that key, by a plain reading.
std::optional<std::vector<std::uint64_t>> plain_numbers(const std::string& text,
                                                        const std::string& key, unsigned base) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key + ":")) continue;
    std::vector<std::uint64_t> numbers;
    std::size_t at = key.size() + 1;
    const std::string digits = base == 16  ? "0123456789abcdef"
                               : base == 8 ? "01234567"
                                           : "0123456789";
    for (;;) {
      while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
      const std::size_t from = at;
      std::uint64_t value = 0;
      for (std::size_t digit;
           at < line.size() && (digit = digits.find(line[at])) != std::string::npos; ++at)
        value = value * base + digit;
      if (at == from) return numbers;
      numbers.push_back(value);
    }
  }
  return std::nullopt;
}

void check_status(const std::string& text) {
  const sys::UniqueFd file(memfd_create("status", MFD_CLOEXEC));
  FUZZ_CHECK(file.valid() &&
             pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  Status status;
  const int length = status.read(file.get());
  FUZZ_CHECK(length >= 0);
  const std::string seen = text.substr(0, static_cast<std::size_t>(length));
  for (const auto& [key, base] : {std::pair{"Uid", 10U},
                                  {"Groups", 10U},
                                  {"Umask", 8U},
                                  {"CapEff", 16U},
                                  {"Seccomp", 10U},
                                  {"Seccomp_filters", 10U}}) {
    std::uint64_t found[64];
    const int count = status.numbers(key, base, found, 64);
    const auto wanted = plain_numbers(seen, key, base);
    FUZZ_CHECK(count == (wanted ? static_cast<int>(std::min<std::size_t>(wanted->size(), 64)) : -1),
               key);
    for (int i = 0; i < count; ++i)
      FUZZ_CHECK(found[i] == (*wanted)[static_cast<std::size_t>(i)], key);
  }
}

void check_mounts(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    MountLine parsed;
    // In a block of its own, so that a read beyond the end is seen.
    if (!parsed.parse(line.c_str())) continue;
    FUZZ_CHECK(std::strlen(parsed.point) < sizeof parsed.point);
    FUZZ_CHECK(parsed.flags <= kFlagMask);
  }
}

void check_cgroups(const std::string& text) {
  const std::size_t half = text.find("\n%\n");
  const std::string membership = text.substr(0, half);
  const std::string mounts = half == std::string::npos ? "" : text.substr(half + 3);
  for (const char* controller : {"memory", "pids", "cpu"}) {
    const auto own = sys::find_own_cgroup(membership, mounts, controller);
    if (!own)
      FUZZ_CHECK(!own.error().what.empty());
    else
      FUZZ_CHECK(own->directory.starts_with(own->mount_point), own->directory);
  }
}

}  // namespace
}  // namespace belljar::launcher

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A kernel's text has no NUL, and the child ends its reading at one.
  std::string text(belljar::fuzz::text_of(data, size));
  std::replace(text.begin(), text.end(), '\0', '0');
  belljar::launcher::check_status(text);
  belljar::launcher::check_mounts(text);
  belljar::launcher::check_cgroups(text);
  return 0;
}
