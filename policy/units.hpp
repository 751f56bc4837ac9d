// The small notations within strings: sizes, durations, octal modes, paths.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace belljar::policy {

/// A value, or what is wrong with the text as it is shown to a person.
template <class T>
using Parsed = tl::expected<T, std::string>;

/// "512MiB": a whole number of B, KiB, MiB, GiB or TiB.
[[nodiscard]] Parsed<std::uint64_t> parse_size(std::string_view text);

/// "512 MiB", or "1000 B" for what is no whole number of them: for people.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

/// "500ms", "30s", "15m", "2h", "1d": whole numbers, up to 365 days.
[[nodiscard]] Parsed<std::chrono::milliseconds> parse_duration(std::string_view text);

/// One to four octal digits, at most `limit`.
[[nodiscard]] std::optional<std::uint32_t> parse_octal(std::string_view text, std::uint32_t limit);

/// Decimal digits, or hexadecimal ones after "0x".
[[nodiscard]] std::optional<std::uint64_t> parse_unsigned(std::string_view text);

/// Decimal digits and nothing else.
[[nodiscard]] std::optional<std::uint64_t> parse_decimal(std::string_view text);

/// `text` without "//", "/./" and a trailing "/". Refuses relative paths, "..", and what the kernel
/// could not hold (255 bytes in a component, 4095 in all).
[[nodiscard]] Parsed<std::string> normalise_path(std::string_view text);

}  // namespace belljar::policy
