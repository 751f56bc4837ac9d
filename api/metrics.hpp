// What Prometheus reads: counts without names of sessions or clients in them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "supervisor/supervisor.hpp"

namespace belljar::api {

class Metrics {
 public:
  void count(int status) {
    if (status >= 100 && status < 600) ++answers_[static_cast<std::size_t>(status / 100)];
  }
  [[nodiscard]] std::string text(const supervisor::Supervisor& supervisor, std::size_t connections,
                                 std::uint64_t audit_lost) const;

 private:
  std::array<std::uint64_t, 6> answers_{};
};

}  // namespace belljar::api
