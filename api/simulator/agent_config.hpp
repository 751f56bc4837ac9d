// config.yaml: what is set in it for an agent, and what is hidden of it from its readers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policy/units.hpp"

namespace belljar::api {

/// The client's configuration with the agent's WebSocket server on 127.0.0.1:`port`, and with those
/// credentials that there are. Otherwise why not; the text holds nothing of the configuration.
[[nodiscard]] policy::Parsed<std::string> agent_config(
    std::string_view yaml, std::uint16_t port,
    const std::map<std::string, std::string>& credentials);

/// The same text without the values of keys that name secrets, and without every scalar that has
/// one of `secrets` in it, or a password as URLs and HTTP have them: whole where it is no YAML.
[[nodiscard]] std::string without_secrets(std::string_view yaml,
                                          const std::vector<std::string>& secrets = {});

}  // namespace belljar::api
