#include "api/http/message.hpp"

#include <algorithm>

namespace belljar::api {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace

std::optional<std::string_view> Headers::find(std::string_view name) const {
  std::optional<std::string_view> found;
  for (const auto& [field, value] : fields_) {
    if (!same_name(field, name)) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

std::size_t Headers::count(std::string_view name) const {
  return static_cast<std::size_t>(
      std::count_if(fields_.begin(), fields_.end(),
                    [name](const auto& field) { return same_name(field.first, name); }));
}

std::string_view reason_phrase(int status) {
  static constexpr std::pair<int, std::string_view> kPhrases[] = {
      {100, "Continue"},
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {206, "Partial Content"},
      {304, "Not Modified"},
      {307, "Temporary Redirect"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {406, "Not Acceptable"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {412, "Precondition Failed"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {416, "Range Not Satisfiable"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {422, "Unprocessable Entity"},
      {426, "Upgrade Required"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {507, "Insufficient Storage"},
  };
  for (const auto& [number, phrase] : kPhrases)
    if (number == status) return phrase;
  return "Unknown";
}

std::string serialise_head(const Response& response, bool keep_alive,
                           std::optional<std::uint64_t> length) {
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  text += reason_phrase(response.status);
  text += "\r\n";
  // RFC 9110, 8.6: no length where there can be no body.
  if (response.status != 204 && response.status != 304) {
    if (length != 0 && !response.content_type.empty())
      text += "content-type: " + response.content_type + "\r\n";
    text += length ? "content-length: " + std::to_string(*length) + "\r\n"
                   : "transfer-encoding: chunked\r\n";
  }
  for (const auto& [name, value] : response.headers.all()) text += name + ": " + value + "\r\n";
  text += keep_alive ? "\r\n" : "connection: close\r\n\r\n";
  return text;
}

std::string serialise(const Response& response, bool keep_alive, bool head_only) {
  std::string text = serialise_head(response, keep_alive, response.body.size());
  if (!head_only && response.status != 204 && response.status != 304) text += response.body;
  return text;
}

bool split_target(std::string_view target, Request& request) {
  request.target = target;
  const std::size_t question = std::min(target.find('?'), target.size());
  request.query = question < target.size() ? target.substr(question + 1) : std::string_view();
  std::string_view path = target.substr(0, question);
  if (path.empty() || path.front() != '/') return false;
  path.remove_prefix(1);
  request.path.clear();
  request.trailing_slash = path.ends_with('/');
  if (path.empty()) return true;
  if (request.trailing_slash) path.remove_suffix(1);
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    std::optional<std::string> part = percent_decoded(path.substr(from, to - from));
    if (!part) return false;
    request.path.push_back(std::move(*part));
    from = to + 1;
  }
  return true;
}

std::optional<std::string> query_decoded(std::string_view text) {
  std::string plain(text);
  std::replace(plain.begin(), plain.end(), '+', ' ');
  return percent_decoded(plain);
}

bool same_name(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

bool lists_word(std::string_view list, std::string_view word) {
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    if (same_name(trim(list.substr(from, to - from)), word)) return true;
    from = to + 1;
  }
  return false;
}

std::string_view trim(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t") - from + 1);
}

}  // namespace belljar::api
