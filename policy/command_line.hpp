// What every program of the house says of a command line that it does not understand.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace belljar::policy {

/// Without the value that is glued to it, which may be a secret.
[[nodiscard]] std::string option_word(const std::string& word);

/// Of a word that is neither an option nor anything else of `command`.
[[nodiscard]] std::string unknown_option(const CLI::App& command, const std::string& word);

/// Throws CLI::ValidationError for an option that was given nothing, as `--policy "$POLICY"` does:
/// it would mean the default otherwise. After parsing; subcommands too.
void refuse_empty_values(const CLI::App& command);

/// The same of `--policy=`, behind which CLI11 takes the next word as its value.
void refuse_empty_values(std::span<char* const> words);

}  // namespace belljar::policy
