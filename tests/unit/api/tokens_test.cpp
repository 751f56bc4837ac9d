// Tokens: where they come from, and which are right.
#include "api/tokens.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

using namespace belljar::api;

namespace {

const std::string kLong = "0123456789abcdef0123456789abcdef";

/// A directory that is gone with the test.
struct Directory {
  std::string path;
  Directory() {
    char name[] = "/tmp/belljar-tokens-XXXXXX";
    path = mkdtemp(name);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string file(const std::string& name, const std::string& text,
                                 mode_t mode) const {
    const std::string where = path + '/' + name;
    std::ofstream(where) << text;
    chmod(where.c_str(), mode);
    return where;
  }
};

belljar::policy::Settings with_file(const std::string& path) {
  belljar::policy::Settings settings;
  settings.token_file = path;
  return settings;
}

}  // namespace

TEST_CASE("a token counts without its blanks, and nothing else counts") {
  Tokens tokens;
  tokens.add("ada", "  " + kLong + " \n");
  tokens.add("bob", "other-token");
  CHECK(tokens.client_of(kLong) == "ada");
  CHECK(tokens.client_of("other-token") == "bob");
  for (const std::string& wrong :
       {std::string(), kLong + "0", kLong.substr(1), kLong.substr(0, 31),
        std::string("OTHER-TOKEN"), kLong + '\0', std::string(1 << 20, 'a')})
    CHECK_FALSE(tokens.client_of(wrong));
  CHECK(tokens.warnings().size() == 1);
}

TEST_CASE("a token of blanks is none") {
  Tokens tokens;
  tokens.add("ada", " \t\n");
  tokens.add("ada", "");
  CHECK(tokens.empty());
  CHECK_FALSE(tokens.client_of(""));
}

TEST_CASE("two tokens of a file are valid at once, and a file in a directory is a client's") {
  const Directory directory;
  const std::string file = directory.file("ada", kLong + "\n\nsecond\n", 0640);
  auto tokens = load_tokens(with_file(file));
  REQUIRE(tokens);
  CHECK(tokens->client_of(kLong) == "default");
  CHECK(tokens->client_of("second") == "default");
  (void)directory.file("bob", "third", 0600);
  (void)directory.file(".hidden", "fourth", 0600);
  tokens = load_tokens(with_file(directory.path));
  REQUIRE(tokens);
  CHECK(tokens->client_of("second") == "ada");
  CHECK(tokens->client_of("third") == "bob");
  CHECK_FALSE(tokens->client_of("fourth"));
}

TEST_CASE("a token file that others can read, that is empty or not a file is an error") {
  const Directory directory;
  CHECK(load_tokens(with_file(directory.file("good", kLong, 0640))).has_value());
  for (const mode_t mode : {0644u, 0604u, 0641u, 0602u})
    CHECK_FALSE(load_tokens(with_file(directory.file("open", kLong, mode))));
  CHECK_FALSE(load_tokens(with_file(directory.file("empty", " \n", 0600))));
  CHECK_FALSE(load_tokens(with_file(directory.path + "/missing")));
  mkfifo((directory.path + "/fifo").c_str(), 0600);
  CHECK_FALSE(load_tokens(with_file(directory.path + "/fifo")));
}
