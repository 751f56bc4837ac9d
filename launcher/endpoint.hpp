// An address and a port, as questions and a policy's own tests write them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "policy/base/result.hpp"

namespace belljar::launcher {

struct Endpoint {
  sockaddr_storage address{};  ///< In network order, with its port.
  socklen_t size = 0;
  std::uint16_t port = 0;

  [[nodiscard]] int family() const { return address.ss_family; }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

/// Reads "192.0.2.1:80" or "[2001:db8::1]:80". kInvalid says what is wrong with it: a name (nobody
/// is asked what it stands for), an IPv6 address without brackets, a port that is none.
[[nodiscard]] Result<Endpoint> parse_endpoint(std::string_view text);

}  // namespace belljar::launcher
