// The body of POST /sessions: what it may hold, and what a session's workspace is made of.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/units.hpp"

namespace belljar::api {

/// The three that an agent may be given; anything else a client sends is dropped.
inline constexpr std::string_view kCredentials[] = {"OPENAI_API_KEY", "HUGGINGFACEHUB_API_TOKEN",
                                                    "REPLICATE_API_TOKEN"};

struct CreateRequest {
  std::string session_id;  ///< As it was sent.
  std::string agent_code, config_yaml;
  std::map<std::string, std::string> credentials;    ///< The non-empty ones.
  std::map<std::string, std::string> support_files;  ///< By path, as it was sent.
  std::vector<std::string> workspace_paths;
};

/// The request, or the body of a 422: which members are wrong and how, never what they hold.
[[nodiscard]] tl::expected<CreateRequest, std::string> parse_create_request(
    std::string_view content_type, std::string_view body);

/// A path below the workspace: blanks, drive letters and leading slashes go, backslashes turn.
/// Otherwise the reason why it is none.
[[nodiscard]] policy::Parsed<std::string> normalise_workspace_path(std::string_view path);

/// Whether brackets are nested at most `most` deep.
[[nodiscard]] bool nested_at_most(std::string_view json, int most);

}  // namespace belljar::api
