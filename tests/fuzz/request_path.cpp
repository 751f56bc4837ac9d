// What a stranger sends, down to what a face would make of it: the same whichever way the bytes are
// cut, and nothing but a refusal or a request that is sound.
#include "api/http/request_reader.hpp"
#include "api/simulator/agent_config.hpp"
#include "api/simulator/create_request.hpp"
#include "api/simulator/frames.hpp"
#include "api/simulator/uuid.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace belljar::api;
using State = RequestReader::State;

constexpr std::size_t kLimit = 4096;

/// What becomes of bytes that come in pieces of `step`.
std::string outcome_of(std::string_view bytes, std::size_t step, Request* request = nullptr) {
  RequestReader reader;
  std::string buffer;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    buffer += bytes.substr(at, step);
    State before;
    do {
      before = reader.state();
      if (reader.feed(buffer) == State::kDecide) reader.accept_body(kLimit);
    } while (reader.state() != before);
  }
  if (reader.state() == State::kRefused) return std::to_string(reader.refusal().status);
  if (reader.state() != State::kDone) return "more";
  if (request != nullptr) *request = reader.request();
  return reader.request().method + ' ' + reader.request().target + ' ' + reader.request().body;
}

void check_body(const Request& request) {
  FUZZ_CHECK(request.body.size() <= kLimit);
  auto wanted =
      parse_create_request(request.headers.find("content-type").value_or(""), request.body);
  if (!wanted) return;
  const auto uuid = parse_uuid(wanted->session_id);
  FUZZ_CHECK(!uuid || (uuid->size() == 36 && parse_uuid(*uuid) == uuid));
  for (const auto& [path, content] : wanted->support_files) {
    const auto normal = normalise_workspace_path(path);
    FUZZ_CHECK(!normal || (normal->front() != '/' &&
                           ('/' + *normal + '/').find("/../") == std::string::npos),
               path);
  }
  const auto config = agent_config(wanted->config_yaml, 7700, wanted->credentials);
  if (!config) return;
  FUZZ_CHECK(config->find("127.0.0.1") != std::string::npos);
  const auto again = agent_config(*config, 7700, wanted->credentials);
  FUZZ_CHECK(again.has_value(), *config);
  (void)without_secrets(*config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = belljar::fuzz::text_of(data, size);
  Request request;
  const std::string whole = outcome_of(bytes, bytes.size() + 1, &request);
  FUZZ_CHECK(outcome_of(bytes, 1) == whole, whole);
  FUZZ_CHECK(outcome_of(bytes, 7) == whole, whole);
  if (!request.method.empty()) check_body(request);
  LineCutter lines;
  for (const std::string& line : lines.add(bytes))
    for (const std::string& frame : frames_of_line(line)) FUZZ_CHECK(frame.size() <= kMostFrame);
  return 0;
}
