// Where tokens of a JSON text begin and end, and what to say about one that should not be there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "policy/json_tree.hpp"

namespace belljar::policy {

/// Walks a text that a JSON parser has accepted so far, token by token, counting lines.
class TextCursor {
 public:
  TextCursor(std::string_view text, Comments comments);

  /// Moves to the next token: past white space, commas, colons, and comments where allowed.
  void skip_to_token();

  /// Moves past white space and comments only.
  void skip_blank();

  /// Moves past the token, comma or colon that begins here.
  void pass_token();

  /// Moves forward to `offset`; does nothing when that lies behind.
  void seek(std::size_t offset);

  [[nodiscard]] bool at_end() const { return offset_ == text_.size(); }
  [[nodiscard]] std::size_t offset() const { return offset_; }
  /// Where the token began that was passed last.
  [[nodiscard]] std::size_t last_token() const { return last_token_; }
  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] int column() const { return static_cast<int>(offset_ - line_start_) + 1; }

 private:
  [[nodiscard]] std::size_t comment_end() const;
  [[nodiscard]] std::size_t token_end() const;

  std::string_view text_;
  Comments comments_;
  std::size_t offset_ = 0;
  std::size_t last_token_ = 0;
  std::size_t line_start_ = 0;
  int line_ = 1;
};

/// What nlohmann said: how many bytes it had read, and its message. (Its idea of the last token is
/// not used: that may hold tokens before it.)
struct ParserReport {
  std::size_t position;
  std::string_view message;
};

struct SyntaxError {
  std::size_t offset;
  std::string message;
};

/// `cursor` stands behind the last token that was good.
[[nodiscard]] SyntaxError explain_syntax_error(std::string_view text, TextCursor cursor,
                                               const ParserReport& report);

}  // namespace belljar::policy
