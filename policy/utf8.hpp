// Whether bytes are text, and where they may be cut.
#pragma once

#include <cstddef>
#include <string_view>

namespace belljar::policy {

/// Well-formed UTF-8: no overlong forms, surrogates, or bytes that begin nothing.
[[nodiscard]] bool is_utf8(std::string_view bytes);

/// How many of these bytes come before a character that is cut off at their end: all of them where
/// none is, or where the end is no UTF-8 anyway.
[[nodiscard]] std::size_t whole_characters(std::string_view bytes);

/// How many bytes at the beginning are the rest of a character that began before: at most 3.
[[nodiscard]] std::size_t torn_beginning(std::string_view bytes);

}  // namespace belljar::policy
