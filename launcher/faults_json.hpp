// Faults as both self-tests print them for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "launcher/trial.hpp"

namespace belljar::launcher {

[[nodiscard]] inline nlohmann::ordered_json json_of(const std::vector<NotInForce>& faults) {
  auto list = nlohmann::ordered_json::array();
  for (const NotInForce& one : faults)
    list.push_back({{"control", one.control},
                    {"what", one.what},
                    {"policy", one.policy},
                    {"remedy", one.remedy}});
  return list;
}

}  // namespace belljar::launcher
