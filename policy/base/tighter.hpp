#pragma once

#include <algorithm>
#include <optional>

namespace belljar {

/// The smaller of two limits; one that is nothing does not limit.
template <class T>
[[nodiscard]] constexpr std::optional<T> tighter(const std::optional<T>& one,
                                                 const std::optional<T>& other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

}  // namespace belljar
