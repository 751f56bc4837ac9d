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

std::string as_option(const std::string& setting) {
  std::string quoted = "--set '";
  for (const char letter : setting) {
    if (letter == '\'')
      quoted += "'\\''";
    else
      quoted += letter;
  }
  return quoted + "'";
}

}  // namespace belljar::launcher
