#include "api/tokens.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "policy/base/unique_fd.hpp"
#include "policy/digest.hpp"

namespace belljar::api {
namespace {

constexpr std::size_t kShortToken = 32;
constexpr std::size_t kMostFile = std::size_t{64} << 10;

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const std::size_t from = text.find_first_not_of(kBlanks);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kBlanks) - from + 1);
}

/// Looks at every byte, wherever the first difference is.
bool same_digest(const std::string& one, const std::string& other) {
  unsigned difference = one.size() == other.size() ? 0u : 1u;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    difference |= static_cast<unsigned>(one[i] ^ other[i]) & 0xffu;
  return difference == 0;
}

Result<std::string> read_private_file(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return sys_failure(errno, "open the token file " + path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return sys_failure(errno, "look at the token file " + path);
  if (!S_ISREG(status.st_mode))
    return fail(
        {ErrorKind::kInvalid, 0, "the token file " + path + " is not a regular file", {}, {}});
  if ((status.st_mode & 07) != 0)
    return fail({ErrorKind::kRefused,
                 0,
                 "the token file " + path + " is open to everybody",
                 {},
                 "chmod 0640 " + path + " and replace the token"});
  std::string text(kMostFile, '\0');
  const ssize_t size = read(file.get(), text.data(), text.size());
  if (size < 0) return sys_failure(errno, "read the token file " + path);
  if (static_cast<std::size_t>(size) == kMostFile)
    return fail({ErrorKind::kInvalid, 0, "the token file " + path + " is too large", {}, {}});
  text.resize(static_cast<std::size_t>(size));
  return text;
}

Status add_file(Tokens& tokens, const std::string& client, const std::string& path) {
  const std::string text = BELLJAR_TRY(read_private_file(path));
  const std::size_t before = tokens.size();
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    tokens.add(client, std::string_view(text).substr(from, to - from));
    from = to + 1;
  }
  if (tokens.size() > before) return {};
  return fail({ErrorKind::kInvalid,
               0,
               "the token file " + path + " holds no token",
               {},
               "write one token on a line of its own, for example of: openssl rand -hex 32"});
}

}  // namespace

void Tokens::add(std::string client, std::string_view token) {
  token = without_blanks(token);
  if (token.empty()) return;
  if (token.size() < kShortToken)
    warnings_.push_back("a token of " + client + " is shorter than " + std::to_string(kShortToken) +
                        " characters");
  entries_.push_back({std::move(client), policy::sha256_digest(token)});
}

std::optional<std::string> Tokens::client_of(std::string_view token) const {
  const std::string digest = policy::sha256_digest(without_blanks(token));
  const Entry* found = nullptr;
  for (const Entry& entry : entries_)
    if (same_digest(entry.digest, digest)) found = &entry;
  if (found == nullptr) return std::nullopt;
  return found->client;
}

Result<Tokens> load_tokens(const policy::Settings& settings) {
  Tokens tokens;
  tokens.add("default", settings.token);
  const std::string& path = settings.token_file;
  if (path.empty()) return tokens;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    BELLJAR_CHECK(add_file(tokens, "default", path));
    return tokens;
  }
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) return sys_failure(error.value(), "list the directory of token files " + path);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names)
    if (!name.starts_with('.')) BELLJAR_CHECK(add_file(tokens, name, path + '/' + name));
  return tokens;
}

}  // namespace belljar::api
