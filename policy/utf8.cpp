#include "policy/utf8.hpp"

#include <algorithm>
#include <cstdint>

namespace belljar::policy {
namespace {

std::uint8_t at(std::string_view bytes, std::size_t i) {
  return static_cast<std::uint8_t>(bytes[i]);
}

bool continues(std::uint8_t byte) { return (byte & 0xc0) == 0x80; }

/// Of the character that a byte begins; 0 where it begins none.
std::size_t length_from(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

/// What the second byte may be is narrower behind some first ones (RFC 3629, 4).
bool second_fits(std::uint8_t lead, std::uint8_t second) {
  if (lead == 0xe0) return second >= 0xa0;
  if (lead == 0xed) return second < 0xa0;
  if (lead == 0xf0) return second >= 0x90;
  if (lead == 0xf4) return second < 0x90;
  return true;
}

/// Whether as much as there is of the character at `from` is well-formed.
bool well_formed(std::string_view bytes, std::size_t from, std::size_t length) {
  for (std::size_t i = 1; i < length && from + i < bytes.size(); ++i)
    if (!continues(at(bytes, from + i))) return false;
  return length < 2 || from + 1 >= bytes.size() ||
         second_fits(at(bytes, from), at(bytes, from + 1));
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = length_from(at(bytes, i));
    if (length == 0 || i + length > bytes.size() || !well_formed(bytes, i, length)) return false;
    i += length;
  }
  return true;
}

std::size_t whole_characters(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const std::size_t from = bytes.size() - back;
    if (continues(at(bytes, from))) continue;
    const std::size_t length = length_from(at(bytes, from));
    return length > back && well_formed(bytes, from, length) ? from : bytes.size();
  }
  return bytes.size();
}

std::size_t torn_beginning(std::string_view bytes) {
  std::size_t torn = 0;
  while (torn < std::min<std::size_t>(3, bytes.size()) && continues(at(bytes, torn))) ++torn;
  return torn;
}

}  // namespace belljar::policy
