#include "supervisor/listeners.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace belljar::supervisor {
namespace {

std::string_view next_word(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  const std::size_t end = line.find(' ', begin);
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end);
  return word;
}

template <class Number>
bool read_number(std::string_view text, int base, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

// sl, local_address, rem_address, st, queues, timer, retransmits, uid. State 0A is LISTEN.
std::optional<Listener> listener_of(std::string_view line) {
  next_word(line);
  const std::string_view local = next_word(line);
  next_word(line);
  if (next_word(line) != "0A") return std::nullopt;
  for (int skipped = 0; skipped < 3; ++skipped) next_word(line);
  const std::size_t colon = local.rfind(':');
  Listener found;
  if (colon == std::string_view::npos || !read_number(local.substr(colon + 1), 16, found.port) ||
      !read_number(next_word(line), 10, found.uid))
    return std::nullopt;
  return found;
}

std::vector<Listener> listeners_around(int pid) {
  std::vector<Listener> found;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/net/" + table);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::vector<Listener> some = listeners_in(text);
    found.insert(found.end(), some.begin(), some.end());
  }
  return found;
}

bool holds(const std::vector<Listener>& listeners, std::uint32_t uid, std::uint16_t port) {
  return std::find(listeners.begin(), listeners.end(), Listener{uid, port}) != listeners.end();
}

}  // namespace

std::vector<Listener> listeners_in(std::string_view table) {
  std::vector<Listener> found;
  while (!table.empty()) {
    const std::size_t end = table.find('\n');
    if (const auto listener = listener_of(table.substr(0, end))) found.push_back(*listener);
    table.remove_prefix(end == std::string_view::npos ? table.size() : end + 1);
  }
  return found;
}

bool uid_listens(int pid, std::uint32_t uid, std::uint16_t port) {
  return pid > 0 && holds(listeners_around(pid), uid, port);
}

bool ListenerTables::listens(int pid, std::uint32_t uid, std::uint16_t port, TimePoint now) {
  struct stat about {};
  // The kernel makes these files once for each network, whoever looks through whichever process.
  const std::string path = "/proc/" + std::to_string(pid) + "/net/tcp";
  if (pid <= 0 || ::stat(path.c_str(), &about) != 0) return false;
  std::erase_if(tables_, [&](const auto& table) { return table.second.until <= now; });
  const auto [found, is_new] = tables_.try_emplace({about.st_dev, about.st_ino});
  if (is_new) {
    const auto began = std::chrono::steady_clock::now();
    found->second.listeners = listeners_around(pid);
    const auto took = std::chrono::steady_clock::now() - began;
    found->second.until = now + std::clamp<std::chrono::nanoseconds>(20 * took, kFresh, kOldest);
  }
  return holds(found->second.listeners, uid, port);
}

}  // namespace belljar::supervisor
