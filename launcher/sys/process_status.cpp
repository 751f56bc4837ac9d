#include "launcher/sys/process_status.hpp"

#include <dirent.h>
#include <fcntl.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"

namespace belljar::sys {
namespace {

/// What follows `key` in its line.
std::istringstream field(std::string_view status, std::string_view key) {
  const std::size_t at = status.find("\n" + std::string(key) + ":\t");
  if (at == std::string_view::npos) return {};
  const std::size_t from = at + key.size() + 3;
  return std::istringstream(std::string(status.substr(from, status.find('\n', from) - from)));
}

template <class Number>
std::vector<Number> numbers(std::istringstream words) {
  std::vector<Number> found;
  for (Number number = 0; words >> number;) found.push_back(number);
  return found;
}

}  // namespace

std::optional<ProcessStatus> status_of(pid_t pid) {
  constexpr std::string_view kName = "Name:\t";
  const std::string text = read_file(proc_directory(), std::to_string(pid) + "/status");
  if (!text.starts_with(kName)) return std::nullopt;
  ProcessStatus found;
  found.name = text.substr(kName.size(), text.find('\n') - kName.size());
  found.uids = numbers<std::uint64_t>(field(text, "Uid"));
  found.numbers = numbers<pid_t>(field(text, "NSpid"));
  for (const char* key : {"SigBlk", "SigIgn", "SigCgt"}) {
    std::uint64_t some = 0;
    field(text, key) >> std::hex >> some;
    found.expected_signals |= some;
  }
  const bool whole = (field(text, "State") >> found.state) &&
                     (field(text, "PPid") >> found.parent) &&
                     (field(text, "Threads") >> found.threads) && !found.uids.empty();
  if (!whole) return std::nullopt;
  return found;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  const int fd = openat(proc_directory(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fd < 0 ? nullptr : fdopendir(fd), closedir);
  while (const dirent* entry = list ? readdir(list.get()) : nullptr)
    if (const int pid = std::atoi(static_cast<const char*>(entry->d_name)); pid > 0)
      found.push_back(pid);
  return found;
}

}  // namespace belljar::sys
