// Tables for people, and text from inside made harmless for their terminals.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace belljar::ctl {

/// `text` with everything that a terminal would obey, or that would reorder or hide other text,
/// written as an escape: control characters (C1 too), bidirectional marks, what is no UTF-8.
[[nodiscard]] std::string visible(std::string_view text);

/// Columns under a heading, as wide as what is in them; the last one is not padded.
class Table {
 public:
  explicit Table(std::vector<std::string> heading);
  /// As many cells as the heading has; they are made visible.
  void add(std::vector<std::string> cells);
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// `argv` on one line, quoted where a shell would need it, and cut where it is long.
[[nodiscard]] std::string command_text(const std::vector<std::string>& argv, std::size_t most);

/// "3s", "12m", "5h", "9d": what of a time has gone by.
[[nodiscard]] std::string age_text(long seconds);

}  // namespace belljar::ctl
