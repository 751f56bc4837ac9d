#include "policy/text_cursor.hpp"

#include <algorithm>

#include "policy/quote.hpp"

namespace belljar::policy {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kWhiteSpace = " \t\r\n";

bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '+' || c == '.';
}

std::string_view word_at(std::string_view text, std::size_t offset) {
  std::size_t end = offset;
  while (end < text.size() && is_word_byte(text[end])) ++end;
  return text.substr(offset, end - offset);
}

/// The part of nlohmann's message between "while parsing " and " - ".
std::string_view context_of(std::string_view message) {
  constexpr std::string_view kBefore = "while parsing ";
  const std::size_t begin = message.find(kBefore);
  if (begin == std::string_view::npos) return {};
  message.remove_prefix(begin + kBefore.size());
  return message.substr(0, message.find(" - "));
}

std::string_view expectation(std::string_view context) {
  if (context == "object key") return "expected a name in double quotes";
  if (context == "object separator") return "expected \":\"";
  if (context == "object") return "expected \",\" or \"}\"";
  if (context == "array") return "expected \",\" or \"]\"";
  return "expected a value";
}

/// Outside of strings JSON is ASCII; a single byte of anything else must not reach a terminal.
bool is_ascii(std::string_view token) {
  return std::none_of(token.begin(), token.end(),
                      [](char c) { return (static_cast<unsigned char>(c) & 0x80) != 0; });
}

/// A token that does not exist in JSON, beginning at `offset`.
SyntaxError explain_word(std::string_view text, std::size_t offset) {
  const std::string_view word = word_at(text, offset);
  if (word.size() > 1 && word[0] == '0' && word.find_first_not_of("0123456789") == word.npos) {
    return {offset, "a number must not begin with 0"};
  }
  if (text[offset] == '/') return {offset, "comments are allowed in .jsonc files only"};
  if (text[offset] == '\'') return {offset, "strings take double quotes"};
  std::string_view bare = word;
  while (!bare.empty() && (bare.front() == '-' || bare.front() == '+')) bare.remove_prefix(1);
  if (bare == "NaN" || bare == "nan" || bare == "Infinity" || bare == "inf") {
    return {offset, in_quotes(word) + " is no number in JSON"};
  }
  if (!bare.empty() && (bare.front() == '.' || (bare.front() >= '0' && bare.front() <= '9'))) {
    return {offset, in_quotes(word) + " is no JSON number"};
  }
  if (word.empty()) return {offset, "unexpected " + in_quotes(text.substr(offset, 1))};
  return {offset, in_quotes(word) + " is no JSON value; strings take double quotes"};
}

/// The lexer stopped within a token that begins at `begin`; `stop` is the byte that it disliked.
SyntaxError explain_token(std::string_view text, std::size_t begin, std::size_t stop,
                          std::string_view message) {
  const auto says = [message](std::string_view part) {
    return message.find(part) != std::string_view::npos;
  };
  if (says("- invalid comment")) return {begin, "a comment without its end"};
  if (says("- invalid string: missing closing quote")) {
    return {begin, "a string without its closing quote"};
  }
  if (says("- invalid string: ill-formed UTF-8")) return {stop, "invalid UTF-8"};
  if (says("- invalid string: control character")) {
    if (stop < text.size() && text[stop] == '\n') {
      return {stop, "a line break within a string; is a closing quote missing?"};
    }
    return {stop, "a control character within a string must be escaped"};
  }
  if (says("- invalid string")) return {stop, "an invalid escape in a string"};
  // A byte that begins no token at all, such as the lead byte of a UTF-8 sequence.
  if (begin < text.size() && !is_ascii(text.substr(begin, 1))) {
    return {begin, "unexpected character outside of a string"};
  }
  return explain_word(text, std::min(begin, text.size() - 1));
}

/// A good token in a place where it cannot be: the one that ends with the last byte read.
SyntaxError explain_unexpected(std::string_view text, TextCursor cursor, std::size_t read,
                               std::string_view message) {
  std::size_t begin = cursor.offset();
  while (cursor.offset() < read) {
    cursor.skip_blank();
    begin = cursor.offset();
    cursor.pass_token();
  }
  if (message.find("; expected end of input") != std::string_view::npos) {
    return {begin, "text after the end of the policy"};
  }
  const std::string_view token = text.substr(begin, cursor.offset() - begin);
  const std::size_t before =
      begin == 0 ? std::string_view::npos : text.find_last_not_of(kWhiteSpace, begin - 1);
  if (before != std::string_view::npos && text[before] == ',' && (token == "}" || token == "]")) {
    return {before, "a comma before " + in_quotes(token) + "; remove it"};
  }
  const std::string what = token.starts_with('"') ? "string"
                           : is_ascii(token)      ? in_quotes(token)
                                                  : "character";
  return {begin, "unexpected " + what + "; " + std::string(expectation(context_of(message)))};
}

}  // namespace

TextCursor::TextCursor(std::string_view text, Comments comments)
    : text_(text), comments_(comments) {
  if (text.starts_with(kByteOrderMark)) offset_ = line_start_ = kByteOrderMark.size();
}

void TextCursor::seek(std::size_t offset) {
  offset = std::min(offset, text_.size());
  for (; offset_ < offset; ++offset_) {
    if (text_[offset_] == '\n') {
      ++line_;
      line_start_ = offset_ + 1;
    }
  }
}

void TextCursor::skip_blank() {
  while (offset_ < text_.size()) {
    if (kWhiteSpace.find(text_[offset_]) != std::string_view::npos) {
      seek(offset_ + 1);
    } else if (const std::size_t end = comment_end(); end != offset_) {
      seek(end);
    } else {
      return;
    }
  }
}

void TextCursor::skip_to_token() {
  skip_blank();
  while (offset_ < text_.size() && (text_[offset_] == ',' || text_[offset_] == ':')) {
    seek(offset_ + 1);
    skip_blank();
  }
}

/// Behind the comment that begins here; `offset_` when none does, or when it has no end.
std::size_t TextCursor::comment_end() const {
  if (comments_ == Comments::kRefused) return offset_;
  const std::string_view rest = text_.substr(offset_);
  if (rest.starts_with("//")) {
    const std::size_t end = rest.find_first_of("\r\n");
    return end == std::string_view::npos ? text_.size() : offset_ + end;
  }
  if (!rest.starts_with("/*")) return offset_;
  const std::size_t end = rest.find("*/", 2);
  return end == std::string_view::npos ? offset_ : offset_ + end + 2;
}

void TextCursor::pass_token() {
  last_token_ = offset_;
  seek(token_end());
}

std::size_t TextCursor::token_end() const {
  if (at_end()) return offset_;
  if (text_[offset_] == '"') {
    std::size_t end = offset_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    return end + 1;
  }
  const std::size_t length = word_at(text_, offset_).size();
  return offset_ + std::max<std::size_t>(length, 1);
}

SyntaxError explain_syntax_error(std::string_view text, TextCursor cursor,
                                 const ParserReport& report) {
  const std::string_view message = report.message;
  if (message.find("- unexpected end of input") != std::string_view::npos) {
    const std::size_t last = text.find_last_not_of(kWhiteSpace);
    return {last == std::string_view::npos ? 0 : last + 1,
            "unexpected end of the text; " + std::string(expectation(context_of(message)))};
  }
  const std::size_t read = std::min(report.position, text.size());
  // The parser takes "01" and "1-2" for two tokens; the cursor, like a reader, for one bad word.
  if (cursor.offset() != 0 && read <= cursor.offset()) {
    return explain_word(text, cursor.last_token());
  }
  if (message.find("- unexpected ") != std::string_view::npos) {
    return explain_unexpected(text, cursor, read, message);
  }
  cursor.skip_to_token();
  if (message.find("number overflow") != std::string_view::npos) {
    return {cursor.offset(), "number out of range: " + in_quotes(word_at(text, cursor.offset()))};
  }
  return explain_token(text, cursor.offset(), read == 0 ? 0 : read - 1, message);
}

}  // namespace belljar::policy
