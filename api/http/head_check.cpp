#include "api/http/head_check.hpp"

#include <algorithm>

#include "api/http/message.hpp"

namespace belljar::api {
namespace {

bool is_token_character(char c) {
  const bool alphanumeric =
      (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  return alphanumeric || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_character);
}

bool is_visible(char c) { return c > ' ' && c < 0x7f; }

/// What a value may hold; bytes above 127 are let through, as everybody does.
bool is_value_character(char c) {
  return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 18 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<Refusal> check_request_line(std::string_view line) {
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return Refusal{400, "no request line"};
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(line.substr(0, first)) || first > 32) return Refusal{400, "a broken method"};
  if (target.size() > kMostTarget) return Refusal{414, "the target is too long"};
  // Only the origin form: a proxy's forms name a host a second time.
  if (target.empty() || target.front() != '/' ||
      !std::all_of(target.begin(), target.end(), is_visible))
    return Refusal{400, "a broken target"};
  const std::string_view version = line.substr(last + 1);
  if (version == "HTTP/1.1") return std::nullopt;
  return Refusal{version.starts_with("HTTP/") ? 505 : 400, "only HTTP/1.1 is spoken"};
}

/// What the fields say together about where a request ends, and whom it is for.
struct Framing {
  int hosts = 0, lengths = 0, codings = 0, fields = 0;

  std::optional<Refusal> add(std::string_view name, std::string_view value) {
    if (++fields > static_cast<int>(kMostFields)) return Refusal{431, "too many fields"};
    if (same_name(name, "host")) {
      const bool good = std::all_of(value.begin(), value.end(), is_visible) &&
                        value.find_first_of("/@?#\\") == std::string_view::npos;
      if (++hosts > 1 || !good) return Refusal{400, "a broken Host"};
    } else if (same_name(name, "content-length")) {
      if (++lengths > 1 || !is_number(value)) return Refusal{400, "a broken Content-Length"};
    } else if (same_name(name, "transfer-encoding")) {
      if (++codings > 1 || !same_name(value, "chunked"))
        return Refusal{400, "a Transfer-Encoding other than chunked"};
    } else if (same_name(name, "http2-settings")) {
      return Refusal{400, "HTTP/2 is not spoken"};
    } else if (same_name(name, "expect")) {
      if (!same_name(value, "100-continue")) return Refusal{417, "an Expect that is not known"};
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Refusal> check(int wanted_hosts) const {
    if (hosts != wanted_hosts) return Refusal{400, "no Host"};
    if (lengths > 0 && codings > 0) return Refusal{400, "Content-Length beside Transfer-Encoding"};
    return std::nullopt;
  }
};

std::optional<Refusal> check_status_line(std::string_view line) {
  const bool version = line.starts_with("HTTP/1.1 ") || line.starts_with("HTTP/1.0 ");
  const bool number = line.size() > 12 && is_number(line.substr(9, 3)) && line[9] != '0';
  if (!version || !number || line[12] != ' ' ||
      !std::all_of(line.begin(), line.end(), is_value_character))
    return Refusal{502, "a broken status line"};
  return std::nullopt;
}

std::optional<Refusal> check_field(std::string_view line, Framing& framing) {
  // A line that continues the one before is read as a field of its own by some.
  if (line.front() == ' ' || line.front() == '\t') return Refusal{400, "a folded field"};
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return Refusal{400, "a broken field"};
  const std::string_view value = trim(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), is_value_character))
    return Refusal{400, "a broken field"};
  return framing.add(line.substr(0, colon), value);
}

}  // namespace

std::optional<Refusal> check_partial_head(std::string_view head) {
  for (std::size_t at = head.find('\n'); at != std::string_view::npos; at = head.find('\n', at + 1))
    if (at == 0 || head[at - 1] != '\r') return Refusal{400, "a line that ends without CR"};
  if (head.starts_with("\r\n")) return Refusal{400, "no request line"};
  // The first line tells the two apart: it is all target.
  if (head.size() > kMostTarget + 64 && head.find('\n') == std::string_view::npos)
    return Refusal{414, "the target is too long"};
  if (head.size() > kMostHead) return Refusal{431, "the head is too large"};
  return std::nullopt;
}

namespace {

using CheckLine = std::optional<Refusal> (*)(std::string_view);

/// Every line, the first by a grammar of its own.
std::optional<Refusal> check_lines(std::string_view head, CheckLine check_first, Framing& framing) {
  if (auto refusal = check_partial_head(head)) return refusal;
  bool first = true;
  while (head != "\r\n") {
    const std::size_t end = head.find("\r\n");
    if (end == std::string_view::npos) return Refusal{400, "no end of the head"};
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (line.empty() || line.find('\r') != std::string_view::npos)
      return Refusal{400, "a broken line"};
    const auto refusal = first ? check_first(line) : check_field(line, framing);
    if (refusal) return refusal;
    first = false;
  }
  if (first) return Refusal{400, "no request line"};
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> check_head(std::string_view head) {
  Framing framing;
  if (auto refusal = check_lines(head, check_request_line, framing)) return refusal;
  return framing.check(1);
}

std::optional<Refusal> check_response_head(std::string_view head) {
  Framing framing;
  if (auto refusal = check_lines(head, check_status_line, framing)) return refusal;
  // Chunks are not of HTTP/1.0: one reads them as what they are, another until the end.
  if (framing.codings > 0 && head.starts_with("HTTP/1.0"))
    return Refusal{502, "a Transfer-Encoding in HTTP/1.0"};
  return framing.check(framing.hosts);
}

}  // namespace belljar::api
