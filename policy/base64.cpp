#include "policy/base64.hpp"

#include <array>
#include <cstdint>

namespace belljar::policy {
namespace {

constexpr std::string_view kLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::uint8_t kNoLetter = 255;

constexpr auto kValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoLetter);
  for (std::size_t i = 0; i < kLetters.size(); ++i)
    values[static_cast<unsigned char>(kLetters[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

std::uint32_t byte_at(std::string_view bytes, std::size_t i) {
  return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U;
}

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t bits =
        byte_at(bytes, i) << 16 | byte_at(bytes, i + 1) << 8 | byte_at(bytes, i + 2);
    out += kLetters[bits >> 18];
    out += kLetters[bits >> 12 & 63];
    out += i + 1 < bytes.size() ? kLetters[bits >> 6 & 63] : '=';
    out += i + 2 < bytes.size() ? kLetters[bits & 63] : '=';
  }
  return out;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size() - padding; ++i) {
    const std::uint8_t value = kValues[static_cast<unsigned char>(text[i])];
    if (value == kNoLetter) return std::nullopt;
    bits = bits << 6 | value;
    if (i % 4 != 0) out += static_cast<char>(bits >> (6 - 2 * (i % 4)) & 0xff);
  }
  // What the last letter has beyond whole bytes must be zero, so that each text is one value.
  const std::uint32_t unused = padding == 2 ? 15U : padding == 1 ? 3U : 0U;
  if ((bits & unused) != 0) return std::nullopt;
  return out;
}

}  // namespace belljar::policy
