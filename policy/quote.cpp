#include "policy/quote.hpp"

namespace belljar::policy {
namespace {

constexpr std::size_t kLongestQuoted = 100;

void append_escape(std::string& out, unsigned code) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\u00";
  out += kHex[code >> 4];
  out += kHex[code & 0xf];
}

/// The letter of the short escape of `c`, or NUL when it has none.
char short_escape(char c) {
  switch (c) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return '\0';
  }
}

bool is_plain_name(std::string_view key) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (key.empty() || !is_letter(key.front())) return false;
  for (const char c : key) {
    if (!is_letter(c) && !(c >= '0' && c <= '9')) return false;
  }
  return true;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if (const char letter = short_escape(text[i]); letter != '\0') {
      out += '\\';
      out += letter;
    } else if (byte < 0x20 || byte == 0x7f) {
      append_escape(out, byte);
    } else if (byte == 0xc2 && next >= 0x80 && next <= 0x9f) {
      append_escape(out, next);
      ++i;
    } else {
      out += text[i];
    }
  }
  out += '"';
}

std::string in_quotes(std::string_view text) {
  std::string out;
  if (text.size() <= kLongestQuoted) {
    append_json_string(out, text);
    return out;
  }
  std::size_t cut = kLongestQuoted;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  append_json_string(out, text.substr(0, cut));
  return out + "...";
}

void append_member(std::string& path, std::string_view key) {
  if (is_plain_name(key)) {
    if (!path.empty()) path += '.';
    path += key;
    return;
  }
  path += '[';
  append_json_string(path, key);
  path += ']';
}

}  // namespace belljar::policy
