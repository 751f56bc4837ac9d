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
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Entity";
    case 426:
      return "Upgrade Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return "Unknown";
  }
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
