// Damaged texts: whatever comes in, errors come out, each with a place in the text.
#include <algorithm>
#include <random>
#include <string>

#include "loading.hpp"

namespace belljar::policy {
namespace {

using testing::policy_text;

constexpr std::string_view kFragments[] = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           ":",
                                           "\"",
                                           "null",
                                           "true",
                                           "-1",
                                           "1e9",
                                           "0",
                                           "\\u0000",
                                           "\\",
                                           "/*",
                                           "//",
                                           "\n",
                                           "\xff",
                                           "\xc3",
                                           "4294967295",
                                           "\"5s\"",
                                           "\"type\":",
                                           "\"bind\"",
                                           "\"when\":[{\"arg0\":{\"==\":1}}],",
                                           "\"extends\":[\"builtin:dev@1\"],",
                                           "\"vars\":{\"v\":{\"type\":\"path\"}},",
                                           "\"vars\":{\"n\":{\"type\":\"int\",\"default\":5}},",
                                           "${v}",
                                           "\"${n}\"",
                                           "$${",
                                           "\"final\":[\"network\",\"filesystem\"],",
                                           "\"extends\":[\"base.json\"],",
                                           "\"..\"",
                                           "\"/\":{},",
                                           "\"unlimited\""};

/// One edit of `text`: bytes go, change, move, or a fragment comes in.
void mutate(std::string& text, std::mt19937& random) {
  const auto pick = [&random](std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below == 0 ? 0 : below - 1)(random);
  };
  const std::size_t at = pick(text.size() + 1);
  const std::size_t length = std::min(pick(12), text.size() - at);
  switch (pick(5)) {
    case 0:
      text.erase(at, length);
      break;
    case 1:
      text.insert(at, kFragments[pick(std::size(kFragments))]);
      break;
    case 2:
      text.replace(at, length, kFragments[pick(std::size(kFragments))]);
      break;
    case 3: {
      const std::string copy = text.substr(at, length * 8);
      text.insert(pick(text.size() + 1), copy);
      break;
    }
    default:
      if (at < text.size()) text[at] = static_cast<char>(pick(256));
  }
}

/// Loads `text` and checks what every answer must be like. Returns whether it was accepted.
bool check_answer(std::string_view text) {
  Layers layers;
  layers.add("builtin:agent@1");
  layers.add_text(text, "p.jsonc", /*comments_allowed=*/true);
  layers.add_setting("filesystem.mounts[\"/tmp\"].size", "1MiB", "--set");
  const auto policy = layers.resolve();
  if (policy) {
    CHECK(policy->digest.size() == 71);
    return true;
  }
  CHECK_FALSE(policy.error().empty());
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  for (const Diagnostic& diagnostic : policy.error()) {
    CHECK_FALSE(diagnostic.message.empty());
    CHECK(diagnostic.where.line <= std::max<std::ptrdiff_t>(lines, 100));
    if (diagnostic.where.file == "p.jsonc") {
      CHECK(diagnostic.where.line >= 1);
      CHECK(diagnostic.where.column >= 1);
    }
  }
  return false;
}

TEST_CASE("random damage to presets never crashes, and is refused with places") {
  std::mt19937 random(20240607);  // NOLINT(cert-msc51-cpp): the same texts in every run.
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> names = preset_names();
    std::string text(preset_text(names[static_cast<std::size_t>(round) % names.size()]));
    const int edits = 1 + round % 4;
    for (int i = 0; i < edits; ++i) mutate(text, random);
    accepted += check_answer(text) ? 1 : 0;
  }
  CHECK(accepted < 3000);
}

TEST_CASE("every cut of a preset is refused") {
  const std::string_view text = preset_text("strict@1");
  for (std::size_t size = 0; size + 2 < text.size(); size += 3) {
    CAPTURE(size);
    CHECK_FALSE(check_answer(text.substr(0, size)));
  }
}

TEST_CASE("random paths and values of settings never crash") {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp)
  const std::string_view alphabet = "a.[]\"\\/x{}:0\xff\n";
  for (int round = 0; round < 5000; ++round) {
    std::string path = "filesystem.mounts";
    std::string value;
    for (int i = 0; i < 8; ++i) {
      path += alphabet[random() % alphabet.size()];
      value += alphabet[random() % alphabet.size()];
    }
    Layers layers;
    layers.add("builtin:strict@1");
    layers.add_setting(path, value, "--set");
    CHECK_FALSE(layers.resolve().has_value());
  }
}

TEST_CASE("texts with very many errors or keys are answered quickly and shortly") {
  std::string body = "\"filesystem\":{\"mounts\":{";
  const std::string target(4000, 'a');
  body += "\"/" + target + "\":{";
  for (int i = 0; i < 50000; ++i) body += "\"k" + std::to_string(i) + "\":1,";
  body += "\"type\":\"tmpfs\"}}}";
  Layers layers;
  layers.add_text(policy_text(body), "p.json");
  const auto policy = layers.resolve();
  REQUIRE_FALSE(policy.has_value());
  CHECK(policy.error().size() <= 1001);
  CHECK(policy.error().back().message == "too many errors; there may be more");
}

}  // namespace
}  // namespace belljar::policy
