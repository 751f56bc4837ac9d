// IPv4 addresses and ranges as a policy writes them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "policy/units.hpp"

namespace belljar::policy {

/// All addresses that begin with the first `length` bits of `address`, whose other bits are zero.
struct Ipv4Range {
  std::uint32_t address = 0;  ///< The host's byte order: 127.0.0.1 is 0x7f000001.
  unsigned length = 32;       ///< 0 to 32.

  [[nodiscard]] bool contains(const Ipv4Range& other) const;
  [[nodiscard]] std::uint32_t mask() const { return length == 0 ? 0 : ~0U << (32 - length); }
  bool operator==(const Ipv4Range&) const = default;
};

/// "192.0.2.1" or "10.0.0.0/8": four decimal numbers without leading zeros, which other programs
/// take for octal; no bits beyond the length; not "/32", so that a range has one name only.
[[nodiscard]] Parsed<Ipv4Range> parse_ipv4_range(std::string_view text);

[[nodiscard]] std::string text_of(const Ipv4Range& range);

/// What networks use among themselves (RFC 1918, RFC 6598), and a policy opens by name alone.
inline constexpr std::array<Ipv4Range, 4> kPrivateRanges = {
    {{0x0a000000, 8}, {0xac100000, 12}, {0xc0a80000, 16}, {0x64400000, 10}}};

[[nodiscard]] bool is_private(const Ipv4Range& range);

}  // namespace belljar::policy
