// JSON text as a tree whose every value knows its line and column.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belljar::policy {

/// A position in one of the texts of a load. Cheaper than a Location, which holds a file name.
struct Place {
  int source = 0;  ///< Which text, counted in the order of parsing.
  int line = 0;    ///< From 1; 0 in a setting, which has no lines.
  int column = 0;  ///< From 1, in bytes.
  bool operator==(const Place&) const = default;
};

/// A Diagnostic before its file is looked up.
struct Finding {
  Place place;
  std::string path;
  std::string message;
  bool operator==(const Finding&) const = default;
};

using Findings = std::vector<Finding>;

struct Member;

/// One JSON value. Members are sorted by key, without duplicates.
struct Node {
  enum class Kind {
    kNull,
    kBoolean,
    kUnsigned,  ///< A whole number of at least 0, in `number`.
    kNegative,  ///< A whole number below 0, as written in `text`.
    kFloat,     ///< Any other number, as written in `text`.
    kString,
    kArray,
    kObject,
  };
  Kind kind = Kind::kNull;
  bool boolean = false;
  Place place;
  std::uint64_t number = 0;
  std::string text;
  std::vector<Node> elements;
  std::vector<Member> members;

  [[nodiscard]] const Member* find(std::string_view key) const;
  [[nodiscard]] Member* find(std::string_view key);
};

struct Member {
  std::string key;
  Place key_place;
  Node value;
};

enum class Comments { kRefused, kAllowed };

/// No text is longer, no value lies deeper, no key is longer: all far above any policy, and small
/// enough that a hostile text costs nothing.
inline constexpr std::size_t kLongestText = std::size_t{1} << 20;
inline constexpr std::size_t kDeepest = 32;
inline constexpr std::size_t kLongestKey = 8192;  ///< Twice the longest path.

/// The tree of `text`, or nothing when it has a syntax error. Errors that leave the rest readable
/// (a duplicate key, whose later value is dropped; NUL in a string) are added to `findings` too.
[[nodiscard]] std::optional<Node> parse_json(std::string_view text, int source, Comments comments,
                                             Findings& findings);

/// Sorts the members of `object` and returns those whose key was there before, in the order of
/// their places. `first` of each is where the key was first; it stays in the object.
struct DuplicateMember {
  Member member;
  Place first;
};
[[nodiscard]] std::vector<DuplicateMember> sort_members(Node& object);

/// "the number 512", "an object": what a message says was found.
[[nodiscard]] std::string found_text(const Node& node);

/// `node` as compact JSON; equal trees give equal text.
void append_json(std::string& out, const Node& node);

}  // namespace belljar::policy
