#include "launcher/cli/convert_command.hpp"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <cstring>

#include "launcher/bwrap/convert.hpp"
#include "launcher/cli/options.hpp"
#include "launcher/settings.hpp"
#include "launcher/sys/descriptors.hpp"

namespace belljar::launcher {
namespace {

constexpr int kMissing = 1;
constexpr int kUsage = 2;

constexpr const char* kExamples = R"(
Examples:
  belljar convert --from bwrap -- --ro-bind /usr /usr --unshare-net --dev /dev sh
      The policy that these arguments mean.
  belljar convert --to bwrap agent.json
      The arguments that come closest to a policy.

What the other side cannot say is told on standard error.
Exit status: 0 all of it was converted; 1 not all; 2 usage, or nothing could be read.)";

int tell_missing(const std::vector<std::string>& missing) {
  for (const std::string& what : missing)
    std::fprintf(stderr, "belljar convert: no counterpart: %s\n", what.c_str());
  return missing.empty() ? 0 : kMissing;
}

int from_bwrap(const std::vector<std::string>& words) {
  const Result<bwrap::Options> options = bwrap::parse(words, sys::read_and_close);
  if (!options) {
    std::fprintf(stderr, "belljar convert: %s\n", options.error().what.c_str());
    return kUsage;
  }
  std::array<char, PATH_MAX> here{};
  const std::string directory = getcwd(here.data(), here.size()) != nullptr ? here.data() : "/";
  const bwrap::Converted made = bwrap::to_policy(*options, directory, sys::read_and_close);
  std::fputs(made.policy.c_str(), stdout);
  return tell_missing(made.missing);
}

int to_bwrap(const std::string& reference) {
  policy::Layers layers;
  layers.add(reference);
  const auto policy = layers.resolve();
  if (!policy) {
    print_diagnostics(policy.error());
    return kUsage;
  }
  const bwrap::Arguments made = bwrap::to_arguments(*policy);
  std::string line;
  for (const std::string& word : made.words) line += (line.empty() ? "" : " ") + shell_word(word);
  std::puts(line.c_str());
  return tell_missing(made.missing);
}

}  // namespace

void ConvertCommand::add_to(CLI::App& app) {
  app.description("Turn bwrap's arguments into a policy, or a policy into them");
  CLI::Option* from = app.add_option("--from", from_, "What the arguments behind -- are: bwrap")
                          ->type_name("FORM")
                          ->check(CLI::IsMember({"bwrap"}));
  CLI::Option* to = app.add_option("--to", to_, "What a policy becomes: bwrap")
                        ->type_name("FORM")
                        ->check(CLI::IsMember({"bwrap"}));
  from->excludes(to);
  app.add_option("what", what_, "The arguments, or the policy");
  app.footer(kExamples);
}

int ConvertCommand::run() const {
  if (!from_.empty()) return from_bwrap(what_);
  if (!to_.empty() && what_.size() == 1) return to_bwrap(what_.front());
  std::fputs("belljar convert: expected --from bwrap -- ARGS..., or --to bwrap and one policy\n",
             stderr);
  return kUsage;
}

}  // namespace belljar::launcher
