#include "policy/units.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "policy/quote.hpp"

namespace belljar::policy {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::array<Unit, 5> kSizes{{{"B", 1},
                                      {"KiB", std::uint64_t{1} << 10},
                                      {"MiB", std::uint64_t{1} << 20},
                                      {"GiB", std::uint64_t{1} << 30},
                                      {"TiB", std::uint64_t{1} << 40}}};
constexpr std::array<Unit, 5> kDurations{
    {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}}};
constexpr std::uint64_t kLongestDuration = std::uint64_t{365} * 86'400'000;

std::size_t count_digits(std::string_view text) {
  const std::size_t end = text.find_first_not_of("0123456789");
  return end == std::string_view::npos ? text.size() : end;
}

/// The number at the start of `text` times the factor of `unit`; nothing when that overflows.
std::optional<std::uint64_t> scaled(std::string_view digits, std::uint64_t factor) {
  std::uint64_t number = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (result.ec != std::errc{}) return std::nullopt;
  if (number > std::numeric_limits<std::uint64_t>::max() / factor) return std::nullopt;
  return number * factor;
}

const Unit* find_unit(const std::array<Unit, 5>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

tl::unexpected<std::string> wrong(std::string message) {
  return tl::unexpected<std::string>(std::move(message));
}

/// The binary unit that someone who writes "MB", "mb" or "M" has in mind.
std::string_view meant_size(std::string_view unit) {
  constexpr std::string_view kLetters = "kKmMgGtT";
  constexpr std::array<std::string_view, 4> kNames{"KiB", "MiB", "GiB", "TiB"};
  if (unit.empty() || unit.size() > 3) return {};
  const std::size_t letter = kLetters.find(unit[0]);
  const std::string_view rest = unit.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "b" || rest == "i" || rest == "ib" ||
                     rest == "IB" || rest == "iB";
  return letter == std::string_view::npos || !known ? std::string_view{} : kNames[letter / 2];
}

std::string wrong_size(std::string_view text, std::string_view digits, std::string_view unit) {
  const std::string expected =
      "expected a size such as \"512MiB\", got the string " + in_quotes(text);
  if (digits.empty()) return expected;
  if (unit.empty()) return expected + "; write \"" + std::string(digits) + "B\" if bytes are meant";
  if (unit.front() == '.' || unit.front() == ',') {
    return expected + "; sizes are whole numbers, so take a smaller unit";
  }
  if (const std::string_view meant = meant_size(unit); !meant.empty()) {
    return expected + "; the unit is " + std::string(meant) + ": write \"" + std::string(digits) +
           std::string(meant) + "\"";
  }
  return expected + "; the units are B, KiB, MiB, GiB and TiB";
}

std::string wrong_duration(std::string_view text, std::string_view digits, std::string_view unit) {
  const std::string expected =
      "expected a duration such as \"30s\", got the string " + in_quotes(text);
  if (digits.empty()) return expected;
  if (unit.empty()) {
    return expected + "; write \"" + std::string(digits) + "s\" if seconds are meant";
  }
  if (unit.front() == '.' || unit.front() == ',') {
    return expected + "; durations are whole numbers, so take a smaller unit";
  }
  return expected + "; the units are ms, s, m, h and d";
}

}  // namespace

Parsed<std::uint64_t> parse_size(std::string_view text) {
  const std::string_view digits = text.substr(0, count_digits(text));
  const std::string_view name = text.substr(digits.size());
  const Unit* unit = find_unit(kSizes, name);
  if (digits.empty() || unit == nullptr) return wrong(wrong_size(text, digits, name));
  const std::optional<std::uint64_t> size = scaled(digits, unit->factor);
  if (!size) return wrong("the size " + in_quotes(text) + " does not fit into 64 bits");
  return *size;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  if (bytes != 0 && bytes % kMiB == 0) return std::to_string(bytes / kMiB) + " MiB";
  return std::to_string(bytes) + " B";
}

Parsed<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const std::string_view digits = text.substr(0, count_digits(text));
  const std::string_view name = text.substr(digits.size());
  const Unit* unit = find_unit(kDurations, name);
  if (digits.empty() || unit == nullptr) return wrong(wrong_duration(text, digits, name));
  const std::optional<std::uint64_t> duration = scaled(digits, unit->factor);
  if (!duration || *duration > kLongestDuration) {
    return wrong("the duration " + in_quotes(text) + " is longer than 365d");
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(*duration));
}

std::optional<std::uint32_t> parse_octal(std::string_view text, std::uint32_t limit) {
  std::uint32_t number = 0;
  if (text.empty() || text.size() > 4) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number, 8);
  if (result.ec != std::errc{} || result.ptr != end || number > limit) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_unsigned(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number, hexadecimal ? 16 : 10);
  if (text.empty() || result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  return text.starts_with("0x") ? std::nullopt : parse_unsigned(text);
}

Parsed<std::string> normalise_path(std::string_view text) {
  constexpr std::size_t kLongestComponent = 255;  // NAME_MAX
  constexpr std::size_t kLongestPath = 4095;      // PATH_MAX holds the NUL too.
  if (!text.starts_with('/')) {
    return wrong("expected an absolute path such as \"/work\", got " + in_quotes(text));
  }
  std::string path;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    const std::string_view component = text.substr(begin, end - begin);
    begin = end + 1;
    if (component.empty() || component == ".") continue;
    if (component == "..") return wrong("\"..\" is not allowed in a path: " + in_quotes(text));
    if (component.size() > kLongestComponent) {
      return wrong("a component of the path is longer than 255 bytes: " + in_quotes(component));
    }
    path += '/';
    path += component;
  }
  if (path.size() > kLongestPath) return wrong("the path is longer than 4095 bytes");
  if (path.empty()) path = "/";
  return path;
}

}  // namespace belljar::policy
