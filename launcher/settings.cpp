#include "launcher/settings.hpp"

#include "policy/policy.hpp"
#include "policy/quote.hpp"

namespace belljar::launcher {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  policy::append_json_string(out, text);
  return out;
}

}  // namespace

std::string setting_that_binds(const std::string& source, const std::string& target,
                               bool writable) {
  return policy::member_path("filesystem.mounts", target) +
         "={\"type\":\"bind\",\"source\":" + quoted(source) +
         (writable ? ",\"readonly\":false}" : "}");
}

std::string setting_that_masks(const std::string& path, std::string_view why) {
  return setting_of_text(policy::member_path("filesystem.mask", path), why);
}

std::string setting_of_text(const std::string& path, std::string_view text) {
  return path + "=" + quoted(text);
}

std::string setting_of_texts(const std::string& path, const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ",") + quoted(text);
  return path + "=[" + list + "]";
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string quoted = "'";
  for (const char letter : text) {
    if (letter == '\'')
      quoted += "'\\''";
    else
      quoted += letter;
  }
  return quoted + "'";
}

std::string as_option(const std::string& setting) { return "--set " + shell_word(setting); }

}  // namespace belljar::launcher
