#include "policy/ipv4.hpp"

#include <algorithm>
#include <optional>

namespace belljar::policy {
namespace {

constexpr std::string_view kForm = "expected an IPv4 address or range such as \"10.0.0.0/8\"";

/// One number of an address, at the front of `text`, which it leaves.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  const std::size_t size = std::min(text.find('.'), text.size());
  const std::string_view digits = text.substr(0, size);
  text.remove_prefix(std::min(text.size(), size + 1));
  const auto number = parse_decimal(digits);
  const bool good = number && *number <= 255 && (digits.size() == 1 || digits.front() != '0');
  return good ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

std::optional<std::uint32_t> parse_address(std::string_view text) {
  if (std::count(text.begin(), text.end(), '.') != 3) return std::nullopt;
  std::uint32_t address = 0;
  for (int i = 0; i < 4; ++i) {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    address = address << 8 | *number;
  }
  return address;
}

}  // namespace

bool Ipv4Range::contains(const Ipv4Range& other) const {
  return length <= other.length && (other.address & mask()) == address;
}

Parsed<Ipv4Range> parse_ipv4_range(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto address = parse_address(text.substr(0, slash));
  if (!address) return tl::unexpected(std::string(kForm));
  Ipv4Range range{*address, 32};
  if (slash == std::string_view::npos) return range;
  const auto length = parse_decimal(text.substr(slash + 1));
  if (!length || *length > 32) return tl::unexpected(std::string(kForm));
  range.length = static_cast<unsigned>(*length);
  const Ipv4Range whole{range.address & range.mask(), range.length};
  if (text_of(whole) != text) return tl::unexpected("write it as \"" + text_of(whole) + "\"");
  return range;
}

std::string text_of(const Ipv4Range& range) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8)
    text += std::to_string(range.address >> shift & 255) + (shift > 0 ? "." : "");
  return range.length == 32 ? text : text + "/" + std::to_string(range.length);
}

bool is_private(const Ipv4Range& range) {
  return std::any_of(kPrivateRanges.begin(), kPrivateRanges.end(),
                     [&range](const Ipv4Range& one) { return one.contains(range); });
}

}  // namespace belljar::policy
