#include "policy/command_line.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "policy/suggest.hpp"

namespace belljar::policy {

std::string option_word(const std::string& word) {
  return word.starts_with("-") ? word.substr(0, word.find('=')) : word;
}

std::string unknown_option(const CLI::App& command, const std::string& word) {
  const std::string option = option_word(word);
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent())
    for (const CLI::Option* known : app->get_options())
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const bool takes_command = command.get_option_no_throw("command") != nullptr;
  const std::string what = (option.starts_with("-") ? "unknown option " : "unexpected ") + option;
  if (const std::string_view near = nearest(option, known); !near.empty())
    return what + "; did you mean " + std::string(near) + "?";
  return takes_command ? what + " (the command to run comes after --)" : what;
}

void refuse_empty_values(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string>& given = option->results();
    if (option->get_positional() || std::find(given.begin(), given.end(), "") == given.end())
      continue;
    throw CLI::ValidationError(option->get_name(), "expected a value, got nothing");
  }
  for (const CLI::App* inner : command.get_subcommands()) refuse_empty_values(*inner);
}

void refuse_empty_values(std::span<char* const> words) {
  for (const std::string_view word : words) {
    if (word == "--") return;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      throw CLI::ValidationError(option_word(std::string(word)), "expected a value, got nothing");
  }
}

}  // namespace belljar::policy
