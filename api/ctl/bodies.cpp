#include "api/ctl/bodies.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "policy/base/result.hpp"
#include "policy/base64.hpp"
#include "policy/setting.hpp"

namespace belljar::ctl {
namespace {

constexpr std::size_t kLargestFile = std::size_t{32} << 20;

/// "-e NAME=VALUE", or "-e NAME": what it is here, and nothing where it is not set.
Outcome<Json> environment_of(const std::vector<std::string>& words) {
  Json found = Json::object();
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name.empty()) return failed(FailureKind::kUsage, "--env: a variable has no name");
    const char* here = equals == std::string::npos ? std::getenv(name.c_str()) : nullptr;
    if (equals != std::string::npos)
      found[name] = word.substr(equals + 1);
    else if (here != nullptr)
      found[name] = here;
  }
  return found;
}

/// "LOCAL" or "LOCAL:PATH" in the workspace.
Done add_file(Json& files, const std::string& word) {
  const std::size_t colon = word.rfind(':');
  const std::string local = word.substr(0, colon);
  std::string inside = colon == std::string::npos ? word : word.substr(colon + 1);
  if (colon == std::string::npos) inside = inside.substr(inside.rfind('/') + 1);
  if (local.empty() || inside.empty())
    return failed(FailureKind::kUsage, "--file " + word + ": is not FILE or FILE:PATH");
  const std::string bytes = BELLJAR_TRY(read_whole(local, kLargestFile));
  files[inside] = text_or_base64(bytes);
  return {};
}

/// "memory=512MiB", "rlimits.nofile=64": numbers are numbers.
Done add_limit(Json& limits, const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
    return failed(FailureKind::kUsage, "--limit " + word + ": is not NAME=VALUE",
                  "--limit memory=512MiB, or --limit rlimits.nofile=64");
  std::string name = word.substr(0, equals);
  const std::string value = word.substr(equals + 1);
  Json* into = &limits;
  constexpr std::string_view kRlimits = "rlimits.";
  if (name.starts_with(kRlimits)) {
    into = &limits["rlimits"];
    name.erase(0, kRlimits.size());
  }
  const Json number = Json::parse(value, nullptr, false);
  (*into)[name] = number.is_number() ? number : Json(value);
  return {};
}

}  // namespace

Json text_or_base64(const std::string& bytes) {
  if (policy::is_text(bytes)) return bytes;
  return {{"base64", policy::base64(bytes)}};
}

Outcome<std::string> read_whole(const std::string& path, std::size_t most) {
  const bool standard = path == "-";
  const UniqueFd file(standard ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!standard && !file.valid()) return call_failed(errno, "open " + path);
  std::string bytes;
  std::array<char, 65536> piece{};
  for (;;) {
    const ssize_t got = read(standard ? STDIN_FILENO : file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return call_failed(errno, "read " + (standard ? "standard input" : path));
    if (got == 0) return bytes;
    bytes.append(piece.data(), static_cast<std::size_t>(got));
    if (bytes.size() <= most) continue;
    return failed(FailureKind::kUsage,
                  (standard ? "standard input" : path) + " has more than " +
                      std::to_string(most >> 20) + " MiB",
                  "make a session, and belljarctl cp");
  }
}

Outcome<Json> pairs_of(const std::vector<std::string>& words, const char* option) {
  Json found = Json::object();
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      return failed(FailureKind::kUsage, std::string(option) + ' ' + word + ": is not NAME=VALUE");
    found[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return found;
}

Outcome<Json> process_body(const ProcessOptions& asked) {
  Json body;
  body["argv"] = asked.command;
  Json environment = BELLJAR_TRY(environment_of(asked.environment));
  if (!environment.empty()) body["env"] = std::move(environment);
  if (!asked.directory.empty()) body["cwd"] = asked.directory;
  if (!asked.timeout.empty()) body["wall_time"] = asked.timeout;
  if (!asked.output.empty()) body["output"] = asked.output;
  return body;
}

Done add_session(Json& body, const SessionOptions& asked) {
  if (!asked.policy.empty()) body["policy"] = asked.policy;
  if (!asked.network.empty()) body["network"] = asked.network;
  if (asked.chown && asked.workspace.empty())
    return failed(FailureKind::kUsage, "--chown is about the directory of --workspace");
  if (!asked.workspace.empty())
    body["workspace"] = {{"path", asked.workspace}, {"owner", asked.chown ? "chown" : "keep"}};
  Json variables = BELLJAR_TRY(pairs_of(asked.variables, "--var"));
  if (!variables.empty()) body["vars"] = std::move(variables);
  for (const std::string& file : asked.files) BELLJAR_CHECK(add_file(body["files"], file));
  for (const std::string& limit : asked.limits) BELLJAR_CHECK(add_limit(body["limits"], limit));
  return {};
}

}  // namespace belljar::ctl
