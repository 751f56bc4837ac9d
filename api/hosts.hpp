// Which names of hosts requests over TCP may be sent to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace belljar::api {

/// A page that a browser shows can send requests to any address under a name of its own, which it
/// has made to lead there (DNS rebinding). The name stays in `Host`, and no address is a name.
class Hosts {
 public:
  Hosts() = default;
  /// The operator's names, and those in addresses such as "tcp:sandbox.example:8000".
  Hosts(const std::vector<std::string>& names, const std::vector<std::string>& listen);

  /// Addresses, localhost, what is below it, and the operator's names; with any port.
  [[nodiscard]] bool take(std::string_view host) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace belljar::api
