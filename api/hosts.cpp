#include "api/hosts.hpp"

#include <arpa/inet.h>

#include <algorithm>

#include "api/http/message.hpp"

namespace belljar::api {
namespace {

constexpr std::string_view kTcp = "tcp:", kLocal = "localhost";

bool is_address(const std::string& text) {
  in6_addr space{};
  return inet_pton(AF_INET, text.c_str(), &space) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &space) == 1;
}

bool is_port(std::string_view text) {
  return text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Without port and brackets; empty where it is neither.
std::string_view name_in(std::string_view host) {
  if (host.starts_with('[')) {
    const std::size_t close = host.find(']');
    if (close == std::string_view::npos) return {};
    const std::string_view behind = host.substr(close + 1);
    const bool good = behind.empty() || (behind[0] == ':' && is_port(behind.substr(1)));
    return good ? host.substr(1, close - 1) : std::string_view();
  }
  const std::size_t colon = std::min(host.find(':'), host.size());
  if (colon < host.size() && !is_port(host.substr(colon + 1))) return {};
  return host.substr(0, colon);
}

}  // namespace

Hosts::Hosts(const std::vector<std::string>& names, const std::vector<std::string>& listen)
    : names_(names) {
  for (const std::string& address : listen)
    if (address.starts_with(kTcp))
      names_.emplace_back(name_in(std::string_view(address).substr(kTcp.size())));
}

bool Hosts::take(std::string_view host) const {
  std::string_view name = name_in(host);
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.empty()) return false;
  if (same_name(name, kLocal) || is_address(std::string(name))) return true;
  if (name.size() > kLocal.size() && name[name.size() - kLocal.size() - 1] == '.' &&
      same_name(name.substr(name.size() - kLocal.size()), kLocal))
    return true;
  return std::any_of(names_.begin(), names_.end(),
                     [&](const std::string& known) { return same_name(known, name); });
}

}  // namespace belljar::api
