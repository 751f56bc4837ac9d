// Command lines as the bodies that /v1 takes.
#pragma once

#include <string>
#include <vector>

#include "api/ctl/client.hpp"
#include "api/ctl/commands.hpp"

namespace belljar::ctl {

/// A process body: argv, env, cwd, limits.
[[nodiscard]] Outcome<Json> process_body(const ProcessOptions& asked);
/// Adds policy, vars, files, network and limits.
[[nodiscard]] Done add_session(Json& body, const SessionOptions& asked);

/// {"NAME": "VALUE"} of "NAME=VALUE"; `option` is for the complaint.
[[nodiscard]] Outcome<Json> pairs_of(const std::vector<std::string>& words, const char* option);

/// A whole file, "-" being standard input, of at most `most` bytes.
[[nodiscard]] Outcome<std::string> read_whole(const std::string& path, std::size_t most);

/// As JSON has it: text where it is UTF-8, otherwise {"base64": …}.
[[nodiscard]] Json text_or_base64(const std::string& bytes);

}  // namespace belljar::ctl
