#include "supervisor/listeners.hpp"

#include <charconv>
#include <fstream>
#include <iterator>
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

bool is_number(std::string_view text, int base, std::uint32_t wanted) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size() && number == wanted;
}

// sl, local_address, rem_address, st, queues, timer, retransmits, uid. State 0A is LISTEN.
bool is_listener(std::string_view line, std::uint32_t uid, std::uint16_t port) {
  next_word(line);
  const std::string_view local = next_word(line);
  next_word(line);
  if (next_word(line) != "0A") return false;
  for (int skipped = 0; skipped < 3; ++skipped) next_word(line);
  const std::size_t colon = local.rfind(':');
  return colon != std::string_view::npos && is_number(local.substr(colon + 1), 16, port) &&
         is_number(next_word(line), 10, uid);
}

}  // namespace

bool table_has_listener(std::string_view table, std::uint32_t uid, std::uint16_t port) {
  while (!table.empty()) {
    const std::size_t end = table.find('\n');
    if (is_listener(table.substr(0, end), uid, port)) return true;
    table.remove_prefix(end == std::string_view::npos ? table.size() : end + 1);
  }
  return false;
}

bool uid_listens(int pid, std::uint32_t uid, std::uint16_t port) {
  if (pid <= 0) return false;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/net/" + table);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (table_has_listener(text, uid, port)) return true;
  }
  return false;
}

}  // namespace belljar::supervisor
