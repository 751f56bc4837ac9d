#include "api/ctl/failure.hpp"

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "api/ctl/table.hpp"

namespace belljar::ctl {
namespace {

using nlohmann::json;

std::string text_of(const json& tree, const char* key) {
  const auto found = tree.find(key);
  return found != tree.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// What a proxy or another server says instead, for a person.
std::string beginning_of(std::string_view body) {
  constexpr std::size_t kShown = 200;
  std::string text = visible(body.substr(0, kShown));
  if (body.size() > kShown) text += "...";
  return text;
}

}  // namespace

tl::unexpected<Failure> failed(FailureKind kind, std::string what, std::string remedy) {
  return tl::unexpected(Failure{kind, std::move(what), std::move(remedy), 0, {}, {}, 0, {}});
}

tl::unexpected<Failure> call_failed(int error, std::string what) {
  return failed(FailureKind::kLocal, std::move(what) + ": " + std::strerror(error));
}

Failure problem_of(int status, std::string_view body) {
  Failure failure;
  failure.kind = FailureKind::kProblem;
  failure.status = status;
  const json tree = json::parse(body, nullptr, false);
  if (!tree.is_object() || text_of(tree, "code").empty()) {
    failure.what = "the answer is HTTP " + std::to_string(status) + " and no problem of belljard's";
    if (!body.empty()) failure.what += ": " + beginning_of(body);
    failure.remedy = "is it belljard with /v1 that listens there? --socket and --url say where";
    return failure;
  }
  failure.code = text_of(tree, "code");
  failure.what = text_of(tree, "detail");
  if (failure.what.empty()) failure.what = text_of(tree, "title");
  failure.remedy = text_of(tree, "remedy");
  failure.request = text_of(tree, "instance");
  const auto exit_code = tree.find("exit_code");
  if (exit_code != tree.end() && exit_code->is_number_integer())
    failure.exit_code = exit_code->get<int>();
  const auto errors = tree.find("errors");
  if (errors != tree.end() && errors->is_array())
    for (const json& item : *errors)
      if (item.is_object())
        failure.details.push_back(text_of(item, "pointer") + ": " + text_of(item, "detail"));
  // One that is all there is to say has been said.
  if (failure.details.size() == 1 && failure.details[0] == failure.what) failure.details.clear();
  const auto retry = tree.find("retry_after_s");
  if (failure.remedy.empty() && retry != tree.end() && retry->is_number_integer())
    failure.remedy = "again in " + std::to_string(retry->get<long>()) + " s";
  return failure;
}

std::string failure_text(const Failure& failure) {
  std::string text = "belljarctl: " + visible(failure.what) + '\n';
  for (const std::string& detail : failure.details) text += "belljarctl: " + visible(detail) + '\n';
  if (!failure.remedy.empty()) text += "belljarctl: try: " + visible(failure.remedy) + '\n';
  if (failure.code.empty()) return text;
  text += "belljarctl: code: " + visible(failure.code);
  text += " (HTTP " + std::to_string(failure.status);
  if (!failure.request.empty()) text += ", request " + visible(failure.request);
  return text + ")\n";
}

void say(std::string_view line) { std::fprintf(stderr, "belljarctl: %s\n", visible(line).c_str()); }

}  // namespace belljar::ctl
