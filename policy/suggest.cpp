#include "policy/suggest.hpp"

#include <algorithm>
#include <vector>

#include "policy/quote.hpp"

namespace belljar::policy {
namespace {

constexpr std::size_t kLongestName = 64;  // Longer ones are no typing errors, and costly.
constexpr std::size_t kLongestList = 20;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() > kLongestName) return {};
  std::string_view best;
  // Two slips of the fingers, but in a short name they would leave nothing of it.
  const std::size_t slips = name.size() < 5 ? 1 : std::max<std::size_t>(2, name.size() / 3);
  std::size_t best_distance = slips + 1;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    // A name that shares no letter is not near, however short it is.
    if (distance < best_distance && distance < std::max(name.size(), candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string with_suggestion(std::string what, std::string_view name,
                            std::span<const std::string_view> known) {
  if (const std::string_view near = nearest(name, known); !near.empty()) {
    return what + "; did you mean " + in_quotes(near) + "?";
  }
  if (known.empty() || known.size() > kLongestList) return what;
  what += " (one of: ";
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (i > 0) what += ", ";
    what += known[i];
  }
  return what + ")";
}

}  // namespace belljar::policy
