#include "launcher/cli/policy_command.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "launcher/cli/options.hpp"
#include "policy/order.hpp"
#include "policy/schema.hpp"

namespace belljar::launcher {
namespace {

constexpr const char* kExamples = R"(
Examples:
  belljar policy init agent.jsonc
      A commented policy to start from.
  belljar policy check agent.jsonc
      Everything that is wrong with it at once, each with its line.
  belljar policy check --ceiling site.json agent.jsonc
      Does it allow anything that site.json does not?
  belljar policy show --origin agent.jsonc
      What holds in the end, and which line of which file said so.
  belljar policy diff builtin:agent@1 agent.jsonc
      What it changes.

Exit status: 0 yes (well formed, within the ceiling, the same); 1 no; 2 usage, or a
policy that could not be judged.)";

constexpr const char* kStarter =
    R"jsonc(// A policy for belljar: what a command may see and do. `belljar policy check FILE` judges it,
// `belljar policy show --origin FILE` says what holds in the end and why,
// `belljar run --policy FILE -- COMMAND` runs under it. docs/policy.md explains every part.
{
  "version": 1,

  // What it builds on: presets and files beside this one, lowest first. dev@1 is the host read-only,
  // this directory writable, secrets masked, no network.
  "extends": [ "builtin:dev@1" ],

  // What --var gives: `belljar run --var room=1GiB ...`.
  "vars": { "room": { "type": "size", "default": "256MiB", "max": "4GiB" } },

  "filesystem": {
    "mounts": {
      // Objects merge by key, so that the other mounts of dev@1 stay. null would remove one.
      "/tmp": { "type": "tmpfs", "size": "${room}" }
    }
  },

  // none, private: an own one that reaches out, or shared: the host's network.
  "network": { "mode": "none" },

  // Sizes and durations always have a unit.
  "limits": { "wall_time": "10m", "rlimits": { "nofile": 1024 } },

  // Nothing is passed but what is named, and nothing that a pattern of `deny` matches.
  "env": { "set": { "LANG": "C.UTF-8" } },

  // What policies that extend this one, and --set, may only tighten, such as "network".
  "final": []
}
)jsonc";

using Canonical = std::map<std::string, std::string>;

/// The leaves of an effective policy by path, as JSON.
void collect(const nlohmann::json& node, const std::string& path, Canonical& out) {
  if (!node.is_object() || (node.empty() && !path.empty())) {
    out.emplace(path, node.dump());
    return;
  }
  for (const auto& item : node.items())
    collect(item.value(), policy::member_path(path, item.key()), out);
}

Canonical leaves_of(const policy::Policy& policy) {
  Canonical leaves;
  collect(nlohmann::json::parse(policy.canonical), {}, leaves);
  return leaves;
}

std::optional<policy::Policy> load(const std::string& file, const PolicyOptions& rest) {
  PolicyOptions options = rest;
  options.policy = file;
  return options.resolve();
}

}  // namespace

void PolicyCommand::add_to(CLI::App& app) {
  app.description("Write, check, show and compare policies; nothing is run");
  app.require_subcommand(1);
  app.footer(kExamples);
  init_ = app.add_subcommand("init", "Write a commented policy to start from");
  init_
      ->add_option("file", files_, "Where; a file that exists is left alone. Default: policy.jsonc")
      ->expected(0, 1);
  check_ = app.add_subcommand("check", "Say everything that is wrong with policies");
  check_->add_option("--ceiling", ceiling_, "A whole policy that none of them may exceed")
      ->type_name("FILE|builtin:NAME");
  show_ = app.add_subcommand("show", "Print the effective policy");
  show_->add_flag("--origin", origin_, "A line a value, with the file and line that set it");
  show_->add_flag("--json", json_, "On one line, as it is digested");
  diff_ = app.add_subcommand("diff", "Say how the effective policies A and B differ");
  for (CLI::App* command : {check_, show_, diff_}) {
    command->add_option("file", files_, "A policy file, or builtin:NAME")
        ->required()
        ->expected(command == check_  ? 1
                   : command == diff_ ? 2
                                      : 1,
                   command == check_  ? 1000
                   : command == diff_ ? 2
                                      : 1);
    command->add_option("--var", variables_, "Give a variable its value")
        ->type_name("NAME=VALUE")
        ->allow_extra_args(false);
    command->add_option("--set", settings_, "Set any value of the policy")
        ->type_name("PATH=VALUE")
        ->allow_extra_args(false);
  }
  schema_ = app.add_subcommand("schema", "Print the JSON Schema, for editors");
}

int PolicyCommand::init() const {
  const std::string name = files_.empty() ? "policy.jsonc" : files_.front();
  if (!name.ends_with(".jsonc")) {
    std::fprintf(stderr, "belljar: %s: comments need a name that ends in .jsonc\n", name.c_str());
    return 2;
  }
  // O_EXCL: nothing that exists is touched, not even through a link.
  const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    const char* advice = errno == EEXIST ? "; it is left as it is" : "";
    std::fprintf(stderr, "belljar: %s: cannot be made: %s%s\n", name.c_str(),
                 strerrordesc_np(errno), advice);
    return 1;
  }
  const auto size = static_cast<ssize_t>(std::strlen(kStarter));
  const bool written = write(fd, kStarter, static_cast<std::size_t>(size)) == size;
  if (close(fd) != 0 || !written) {
    std::fprintf(stderr, "belljar: %s: cannot be written\n", name.c_str());
    return 1;
  }
  std::printf("%s written; next: belljar run --policy %s -- COMMAND\n", name.c_str(), name.c_str());
  return 0;
}

int PolicyCommand::check() const {
  PolicyOptions options;
  options.settings = settings_;
  options.variables = variables_;
  std::optional<policy::Policy> ceiling;
  if (!ceiling_.empty() && !(ceiling = load(ceiling_, {}))) return 2;
  bool good = true;
  for (const std::string& file : files_) {
    const std::optional<policy::Policy> policy = load(file, options);
    const policy::Diagnostics excess =
        policy && ceiling ? policy::check_ceiling(*policy, *ceiling) : policy::Diagnostics{};
    print_diagnostics(excess);
    good &= policy.has_value() && excess.empty();
  }
  return good ? 0 : 1;
}

int PolicyCommand::show() const {
  PolicyOptions options;
  options.settings = settings_;
  options.variables = variables_;
  const std::optional<policy::Policy> policy = load(files_.front(), options);
  if (!policy) return 2;
  if (origin_) {
    for (const auto& [path, value] : leaves_of(*policy)) {
      const std::string where = path == "version" ? "belljar" : policy->where(path);
      std::printf("%s: %s = %s\n", where.c_str(), path.c_str(), value.c_str());
    }
  } else if (json_) {
    std::printf("%s\n", policy->canonical.c_str());
  } else {
    std::printf("%s\n", nlohmann::ordered_json::parse(policy->canonical).dump(2).c_str());
  }
  return 0;
}

int PolicyCommand::diff() const {
  PolicyOptions options;
  options.settings = settings_;
  options.variables = variables_;
  const std::optional<policy::Policy> a = load(files_[0], options);
  const std::optional<policy::Policy> b = load(files_[1], options);
  if (!a || !b) return 2;
  const Canonical left = leaves_of(*a), right = leaves_of(*b);
  bool same = true;
  const auto print_side = [&](char sign, const std::string& path, const Canonical& side,
                              const policy::Policy& policy) {
    const auto value = side.find(path);
    if (value == side.end()) return;
    std::printf("%c %s: %s   (%s)\n", sign, path.c_str(), value->second.c_str(),
                policy.where(path).c_str());
  };
  Canonical both = left;
  both.insert(right.begin(), right.end());
  for (const auto& entry : both) {
    const std::string& path = entry.first;
    const auto l = left.find(path), r = right.find(path);
    if (l != left.end() && r != right.end() && l->second == r->second) continue;
    // Names are of the text, not of what it allows.
    if (path == "name" || path == "description") continue;
    same = false;
    print_side('-', path, left, *a);
    print_side('+', path, right, *b);
  }
  return same ? 0 : 1;
}

int PolicyCommand::run() const {
  if (init_->parsed()) return init();
  if (check_->parsed()) return check();
  if (show_->parsed()) return show();
  if (diff_->parsed()) return diff();
  std::fputs(policy::schema_text().c_str(), stdout);
  return 0;
}

}  // namespace belljar::launcher
