#include "api/simulator/uuid.hpp"

namespace belljar::api {
namespace {

void remove_all(std::string& text, std::string_view what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.erase(at, what.size());
}

}  // namespace

std::optional<std::string> parse_uuid(std::string_view text) {
  if (text.size() > 64) return std::nullopt;
  std::string digits(text);
  remove_all(digits, "urn:");
  remove_all(digits, "uuid:");
  while (!digits.empty() && (digits.front() == '{' || digits.front() == '}')) digits.erase(0, 1);
  while (!digits.empty() && (digits.back() == '{' || digits.back() == '}')) digits.pop_back();
  remove_all(digits, "-");
  if (digits.size() != 32) return std::nullopt;
  std::string uuid;
  for (char c : digits) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return std::nullopt;
    if (uuid.size() == 8 || uuid.size() == 13 || uuid.size() == 18 || uuid.size() == 23)
      uuid += '-';
    uuid += c;
  }
  return uuid;
}

}  // namespace belljar::api
