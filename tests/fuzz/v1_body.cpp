// A body of /v1: every one is refused in words that can be sent back, or read into what is in
// bounds.
#include <nlohmann/json.hpp>

#include "api/v1/bodies.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace belljar::api;

void check_problem(const Problem& problem) {
  Request request;
  const Response response = problem_response(request, problem);
  FUZZ_CHECK(response.status >= 400 && response.status < 500, std::to_string(response.status));
  FUZZ_CHECK(nlohmann::json::accept(response.body), response.body);
}

void check_process(const belljar::supervisor::ProcessSpec& process) {
  for (const std::string& word : process.argv) FUZZ_CHECK(word.find('\0') == std::string::npos);
  for (const auto& [name, value] : process.environment) {
    FUZZ_CHECK(!name.empty() && name.find('=') == std::string::npos, name);
    FUZZ_CHECK(value.find('\0') == std::string::npos && name.find('\0') == std::string::npos);
  }
}

void check_session(const tl::expected<SessionBody, Problem>& body) {
  if (!body) return check_problem(body.error());
  if (body->spec.command) check_process(*body->spec.command);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Request request;
  request.headers.add("Content-Type", "application/json");
  request.body = belljar::fuzz::text_of(data, size);
  const auto tree = parse_body(request);
  if (!tree) {
    check_problem(tree.error());
    return 0;
  }
  check_session(read_session(*tree));
  check_session(read_run(*tree));
  for (const FurtherUse use : {FurtherUse::kProgram, FurtherUse::kShell}) {
    const auto further = read_further(*tree, use);
    if (further)
      check_process(further->spec);
    else
      check_problem(further.error());
  }
  return 0;
}
