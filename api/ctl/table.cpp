#include "api/ctl/table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace belljar::ctl {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t size = 0;  ///< 0: no UTF-8.
};

/// The character that `text` begins with, by RFC 3629: no overlong form, no surrogate.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const std::size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return {};
  std::uint32_t code = byte(0) & (0xffU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, size};
}

bool is_obeyed(std::uint32_t code) { return code < 0x20 || (code >= 0x7f && code <= 0x9f); }

/// Marks that reorder what stands beside them, line separators, and what has no width.
bool is_deceptive(std::uint32_t code) {
  return code == 0x61c || (code >= 0x200b && code <= 0x200f) ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
         code == 0xfeff || (code >= 0xfff0 && code <= 0xfffb) || code >= 0xe0000;
}

void append_character(std::string& out, const Character& character, std::string_view text) {
  std::array<char, 16> escape{};
  if (character.size == 0) {
    std::snprintf(escape.data(), escape.size(), "\\x%02x", static_cast<unsigned char>(text[0]));
  } else if (character.code == '\n' || character.code == '\t' || character.code == '\r') {
    out += character.code == '\n' ? "\\n" : character.code == '\t' ? "\\t" : "\\r";
  } else if (is_obeyed(character.code)) {
    std::snprintf(escape.data(), escape.size(), "\\x%02x", character.code);
  } else if (is_deceptive(character.code)) {
    std::snprintf(escape.data(), escape.size(), "\\u{%x}", character.code);
  } else {
    out += text.substr(0, character.size);
  }
  out += escape.data();
}

/// Characters, each of which takes one column: close enough for a table.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool needs_no_quotes(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+~";
  return !word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character character = first_of(text);
    append_character(out, character, text);
    text.remove_prefix(std::max<std::size_t>(character.size, 1));
  }
  return out;
}

Table::Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = cell.empty() ? "-" : visible(cell);
  cells.resize(rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string text;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - width_of(row[i]) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string command_text(const std::vector<std::string>& argv, std::size_t most) {
  std::string text;
  for (const std::string& word : argv) {
    if (!text.empty()) text += ' ';
    if (needs_no_quotes(word)) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
    text += '\'';
  }
  if (width_of(text) <= most) return text;
  std::size_t end = 0;
  for (std::size_t shown = 0; end < text.size() && shown + 3 < most; ++shown)
    end += std::max<std::size_t>(first_of(std::string_view(text).substr(end)).size, 1);
  return text.substr(0, end) + "...";
}

std::string age_text(long seconds) {
  if (seconds < 0) seconds = 0;
  if (seconds < 120) return std::to_string(seconds) + 's';
  if (seconds < 120 * 60) return std::to_string(seconds / 60) + 'm';
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + 'h';
  return std::to_string(seconds / 86400) + 'd';
}

}  // namespace belljar::ctl
