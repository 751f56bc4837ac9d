// Any text as a policy: it is refused with places and words that can be shown, or it is a policy
// whose canonical form is the same policy.
#include <algorithm>

#include "policy/inline_policy.hpp"
#include "policy/load.hpp"
#include "policy/order.hpp"
#include "policy/setting.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace belljar::policy;

auto load(std::string_view text, bool comments) {
  Layers layers;
  layers.add_text(text, "fuzz.json", comments);
  return layers.resolve();
}

bool can_be_shown(const std::string& text) {
  return is_text(text) && std::none_of(text.begin(), text.end(), [](char c) {
           return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
         });
}

void check_refusal(const Diagnostics& diagnostics, std::string_view text) {
  FUZZ_CHECK(!diagnostics.empty());
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  for (const Diagnostic& diagnostic : diagnostics) {
    FUZZ_CHECK(!diagnostic.message.empty());
    if (diagnostic.where.file == "fuzz.json") {
      FUZZ_CHECK(diagnostic.where.line >= 1 && diagnostic.where.line <= lines, diagnostic.text());
      FUZZ_CHECK(diagnostic.where.column >= 1, diagnostic.text());
    }
    if (diagnostic.text().size() < 4096) FUZZ_CHECK(can_be_shown(diagnostic.text()));
  }
}

void check_policy(const Policy& policy) {
  FUZZ_CHECK(policy.digest.size() == 71);
  FUZZ_CHECK(excesses(policy, policy).empty(), excesses(policy, policy).front().path);
  const auto again = load(policy.canonical, false);
  FUZZ_CHECK(again.has_value(), again ? "" : again.error().front().text());
  FUZZ_CHECK(again->canonical == policy.canonical, policy.canonical + "\n" + again->canonical);
  FUZZ_CHECK(excesses(*again, policy).empty(), excesses(*again, policy).front().path);
  FUZZ_CHECK(excesses(policy, *again).empty(), excesses(policy, *again).front().path);
}

/// What a request brings along is a policy, says nothing that is the operator's to say, and is told
/// of in the same way.
void check_inline(std::string_view text) {
  const auto read = read_inline_policy(text, {});
  if (!read) {
    FUZZ_CHECK(!read.error().empty());
    for (const Diagnostic& diagnostic : read.error())
      if (diagnostic.text().size() < 4096) FUZZ_CHECK(can_be_shown(diagnostic.text()));
    return;
  }
  FUZZ_CHECK(load(text, false).has_value());
  FUZZ_CHECK(read->policy.name == kInlineName);
  for (const char* kept : {"identity", "namespaces", "capabilities", "io", "final", "report",
                           "tests", "filesystem.workspace"})
    FUZZ_CHECK(!read->says(kept), kept);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = belljar::fuzz::text_of(data, size);
  for (const bool comments : {false, true}) {
    const auto policy = load(text, comments);
    if (policy)
      check_policy(*policy);
    else
      check_refusal(policy.error(), text);
  }
  check_inline(text);
  return 0;
}
