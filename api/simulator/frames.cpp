#include "api/simulator/frames.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace belljar::api {
namespace {

using nlohmann::json;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// A JSON string in ASCII; bytes that are no UTF-8 are replaced.
std::string quoted(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string number(std::optional<int> value) { return value ? std::to_string(*value) : "null"; }

/// Whether blanks and then "Running body", as a whole word, stand here.
bool runs_body(std::string_view text) {
  constexpr std::string_view kWords = "Running body";
  std::size_t at = 0;
  while (at < text.size() && is_blank(text[at])) ++at;
  if (at == 0 || !text.substr(at).starts_with(kWords)) return false;
  at += kWords.size();
  return at == text.size() || !is_word(text[at]);
}

}  // namespace

std::string stdout_frame(std::string_view line) {
  return R"({"type": "stdout", "line": )" + quoted(line) + '}';
}

std::string state_frame(std::string_view state) {
  return R"({"type": "state_change", "state": )" + quoted(state) + R"(, "_source": "log_state"})";
}

std::string error_frame(std::string_view message) {
  return R"({"type": "error", "message": )" + quoted(message) + '}';
}

std::string exit_frame(std::string_view cause, std::optional<int> exit_code,
                       std::optional<int> signal) {
  return R"({"type": "exit", "cause": )" + quoted(cause) + R"(, "exit_code": )" +
         number(exit_code) + R"(, "signal": )" + number(signal) + '}';
}

std::optional<std::string_view> entered_state(std::string_view line) {
  std::size_t after = 0;
  for (std::size_t close = line.find(']'); close != std::string_view::npos;
       close = line.find(']', after)) {
    const std::size_t open = line.find('[', after);
    if (open < close && open + 1 < close && runs_body(line.substr(close + 1)))
      return line.substr(open + 1, close - open - 1);
    after = close + 1;
  }
  return std::nullopt;
}

std::vector<std::string> frames_of_line(std::string_view line) {
  std::vector<std::string> frames;
  if (const auto state = entered_state(line)) frames.push_back(state_frame(*state));
  frames.push_back(stdout_frame(line));
  return frames;
}

std::vector<std::string> LineCutter::add(std::string_view bytes) {
  std::vector<std::string> lines;
  for (;;) {
    const std::size_t room = kMostLine - held_.size();
    const std::size_t end = bytes.substr(0, room).find('\n');
    if (end == std::string_view::npos && bytes.size() < room) break;
    const std::size_t taken = end == std::string_view::npos ? room : end;
    held_ += bytes.substr(0, taken);
    bytes.remove_prefix(end == std::string_view::npos ? taken : taken + 1);
    lines.push_back(take());
  }
  held_ += bytes;
  return lines;
}

std::optional<std::string> LineCutter::rest() {
  if (held_.empty()) return std::nullopt;
  return take();
}

std::string LineCutter::take() {
  std::string line = std::exchange(held_, {});
  while (!line.empty() && is_blank(line.back())) line.pop_back();
  return line;
}

std::string as_text(std::string_view bytes) {
  const std::string escaped = quoted(bytes);
  return json::parse(escaped, nullptr, false).get<std::string>();
}

}  // namespace belljar::api
