#include "policy/policy.hpp"

#include "policy/quote.hpp"

namespace belljar::policy {

std::string Location::text() const {
  if (line == 0) return file;
  return file + ":" + std::to_string(line) + ":" + std::to_string(column);
}

std::string Policy::where(std::string_view path) const { return origin(path).text(); }

Location Policy::origin(std::string_view path) const {
  // A '.' or '[' inside a quoted key is tried as well, harmlessly: no origin ends within a key.
  // An option of the command line sets what it names, not the rest of the object that it made.
  for (bool exact = true; !path.empty(); exact = false) {
    const auto found = origins.find(std::string(path));
    if (found != origins.end() && (exact || found->second.line > 0)) return found->second;
    const std::size_t cut = path.find_last_of(".[");
    path = path.substr(0, cut == std::string_view::npos ? 0 : cut);
  }
  return {};
}

std::string member_path(std::string_view map_path, std::string_view key) {
  std::string path(map_path);
  append_member(path, key);
  return path;
}

}  // namespace belljar::policy
