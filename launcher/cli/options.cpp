#include "launcher/cli/options.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "policy/setting.hpp"

namespace belljar::launcher {
namespace {

std::string json_string(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The absolute form of a path that was typed. No link is followed for it: one that an earlier
/// command planted must not decide what is shown to the next. Empty, after `..` behind a link, when
/// the words and the file tree disagree about where it leads.
std::string absolute(const std::string& path) {
  std::array<char, PATH_MAX> here{};
  std::string full = path;
  if (!path.starts_with("/")) {
    if (getcwd(here.data(), here.size()) == nullptr) return {};
    full = std::string(here.data()) + "/" + path;
  }
  std::string out;
  for (std::size_t from = 0; from < full.size();) {
    const std::size_t to = std::min(full.find('/', from), full.size());
    const std::string name = full.substr(from, to - from);
    if (name == "..")
      out.erase(out.empty() ? 0 : out.rfind('/'));
    else if (!name.empty() && name != ".")
      out += "/" + name;
    from = to + 1;
  }
  if (out.empty()) out = "/";
  struct stat typed {
  }, found{};
  const bool same = stat(path.c_str(), &typed) == 0 && stat(out.c_str(), &found) == 0 &&
                    typed.st_dev == found.st_dev && typed.st_ino == found.st_ino;
  return same ? out : std::string();
}

/// Collects settings and complaints of one command line.
class Settings {
 public:
  explicit Settings(policy::Layers& layers) : layers_(layers) {}

  void add(const std::string& path, const std::string& json, const std::string& label) {
    layers_.add_setting(path, json, label);
  }

  void complain(const std::string& option, const std::string& what) {
    std::fprintf(stderr, "belljar: %s: %s\n", option.c_str(), what.c_str());
    failed_ = true;
  }

  void add_volume(const std::string& text) {
    const std::string option = "-v " + text;
    std::string source = text.substr(0, text.find(':'));
    std::string target = text.size() > source.size() ? text.substr(source.size() + 1) : "";
    bool readonly = false;
    if (target.ends_with(":ro") || target.ends_with(":rw")) {
      readonly = target.ends_with(":ro");
      target.resize(target.size() - 3);
    }
    if (source.empty() || target.empty() || target.find(':') != std::string::npos)
      return complain(option, "expected SRC:DST or SRC:DST:ro");
    if (access(source.c_str(), F_OK) != 0)
      return complain(option, source + " cannot be found: " + strerrordesc_np(errno));
    source = absolute(source);
    if (source.empty()) return complain(option, "name the source without \"..\"");
    add(policy::member_path("filesystem.mounts", target),
        "{\"type\":\"bind\",\"source\":" + json_string(source) +
            ",\"readonly\":" + (readonly ? "true" : "false") + "}",
        option);
  }

  void add_variable(const std::string& text) {
    const std::string name = text.substr(0, text.find('='));
    const std::string option = "-e " + name;
    if (name.empty()) return complain("-e " + text, "expected NAME or NAME=VALUE");
    std::string value;
    if (name.size() < text.size())
      value = text.substr(name.size() + 1);
    else if (const char* own = std::getenv(name.c_str()))
      value = own;
    else
      return complain(option, "is not set here; write " + name + "=VALUE");
    add(policy::member_path("env.set", name), json_string(value), option);
  }

  void add_workspace(const std::string& directory) {
    const std::string option = "--workspace " + directory;
    if (access(directory.c_str(), F_OK) != 0)
      return complain(option, std::string("cannot be found: ") + strerrordesc_np(errno));
    const std::string path = absolute(directory);
    if (path.empty()) return complain(option, "name the directory without \"..\"");
    add("filesystem.workspace.path", json_string(path), option);
  }

  void add_set(const std::string& text) {
    const std::size_t equals = policy::end_of_setting_path(text);
    if (equals == std::string::npos || equals == 0)
      return complain("--set " + text, "expected PATH=VALUE, as in limits.wall_time=30s");
    std::string value = text.substr(equals + 1);
    // For these the word is a value; JSON's null would unset what it is meant to set.
    if (value == "null" && text.starts_with("io.")) value = "\"null\"";
    add(text.substr(0, equals), value, "--set " + text);
  }

  void add_policy_variable(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return complain("--var " + text, "expected NAME=VALUE, as in work=/srv/work");
    layers_.add_variable(text.substr(0, equals), text.substr(equals + 1), "--var " + text);
  }

  [[nodiscard]] bool failed() const { return failed_; }

 private:
  policy::Layers& layers_;
  bool failed_ = false;
};

}  // namespace

void print_diagnostics(const policy::Diagnostics& diagnostics) {
  for (const policy::Diagnostic& diagnostic : diagnostics)
    std::fprintf(stderr, "%s%s\n", diagnostic.where.line == 0 ? "belljar: " : "",
                 diagnostic.text().c_str());
}

void PolicyOptions::declare(CLI::App& app) {
  app.add_option("-p,--policy", policy,
                 "A policy file, or a preset such as builtin:agent@1. Default: builtin:dev@1")
      ->type_name("FILE|builtin:NAME");
  app.add_option("-v,--volume", volumes, "Show the host's SRC at DST; writable unless :ro")
      ->type_name("SRC:DST[:ro]")
      ->allow_extra_args(false);
  app.add_option("-e,--env", environment, "Set an environment variable, or pass the caller's")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  app.add_option("-w,--workdir", directory, "Start in DIR (a path inside the sandbox)")
      ->type_name("DIR");
  app.add_option("--workspace", workspace, "The writable directory. Default: the policy's")
      ->type_name("DIR");
  app.add_option("--network", network,
                 "none, private: an own one that reaches out, or shared: the host's")
      ->type_name("MODE");
  app.add_option("--timeout", timeout, "End the sandbox after this time: 500ms, 30s, 15m, 2h")
      ->type_name("DURATION");
  app.add_option("--set", settings, "Set any value of the policy, as in limits.rlimits.nofile=64")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  app.add_option("--var", variables, "Give a variable that the policy declares its value")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("command", command, "What to run, after --")->type_name("CMD");
}

std::optional<policy::Policy> PolicyOptions::resolve() const {
  policy::Layers layers;
  layers.add(policy.empty() ? "builtin:dev@1" : policy);
  Settings made(layers);
  for (const std::string& volume : volumes) made.add_volume(volume);
  for (const std::string& variable : environment) made.add_variable(variable);
  if (!workspace.empty()) made.add_workspace(workspace);
  if (!network.empty()) made.add("network.mode", json_string(network), "--network " + network);
  if (!timeout.empty()) made.add("limits.wall_time", json_string(timeout), "--timeout " + timeout);
  for (const std::string& setting : settings) made.add_set(setting);
  for (const std::string& variable : variables) made.add_policy_variable(variable);
  auto resolved = layers.resolve();
  if (!resolved) print_diagnostics(resolved.error());
  if (!resolved || made.failed()) return std::nullopt;
  return std::move(*resolved);
}

}  // namespace belljar::launcher
