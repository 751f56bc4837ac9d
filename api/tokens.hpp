// Who may ask: the tokens of clients.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/base/result.hpp"
#include "policy/settings.hpp"

namespace belljar::api {

/// The tokens that are valid now. They are kept and compared as SHA-256, so that neither the length
/// of a token nor how far a guess is right can be seen in the time that a comparison takes.
class Tokens {
 public:
  /// Blanks at either end do not count; a token of nothing else is none.
  void add(std::string client, std::string_view token);
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  /// Whose token it is. Compares with each, whichever fits.
  [[nodiscard]] std::optional<std::string> client_of(std::string_view token) const;
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Entry {
    std::string client;
    std::string digest;
  };
  std::vector<Entry> entries_;
  std::vector<std::string> warnings_;
};

/// Tokens of the environment and of `token_file`: a file with one on each line, or a directory with
/// such a file for each client, whose name is the client's. A file that others can read is an
/// error.
[[nodiscard]] Result<Tokens> load_tokens(const policy::Settings& settings);

}  // namespace belljar::api
