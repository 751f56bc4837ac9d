#include "launcher/endpoint.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>

namespace belljar::launcher {
namespace {

auto refuse(std::string_view text, const std::string& why) {
  return fail({ErrorKind::kInvalid, 0, "\"" + std::string(text) + "\": " + why, {}, {}});
}

bool is_six(const std::string& text, in6_addr* address) {
  return inet_pton(AF_INET6, text.c_str(), address) == 1;
}

/// The port at the end of `text`; 0: there is none.
std::uint16_t port_at(std::string_view text, std::size_t from) {
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + from, end, port);
  return error == std::errc() && stop == end ? port : std::uint16_t{0};
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse(text, "there is no port: ADDRESS:PORT");
  const std::string host(text.substr(0, colon));
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  in6_addr unused{};
  if (!bracketed && (is_six(host, &unused) || is_six(std::string(text), &unused)))
    return refuse(text, "an IPv6 address stands in brackets before its port: [ADDRESS]:PORT");
  Endpoint found;
  found.port = port_at(text, colon + 1);
  auto& four = reinterpret_cast<sockaddr_in&>(found.address);
  auto& six = reinterpret_cast<sockaddr_in6&>(found.address);
  if (bracketed) {
    if (!is_six(host.substr(1, host.size() - 2), &six.sin6_addr))
      return refuse(text, "what stands in the brackets is no IPv6 address");
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(found.port);
    found.size = sizeof six;
  } else {
    if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1)
      return refuse(text, "\"" + host + "\" is no IP address (names are not looked up)");
    four.sin_family = AF_INET;
    four.sin_port = htons(found.port);
    found.size = sizeof four;
  }
  if (found.port == 0) return refuse(text, "the port is no number from 1 to 65535");
  return found;
}

}  // namespace belljar::launcher
