// What a server inside a sandbox answers: the same whichever way the bytes are cut, and nothing
// that the next hop could read in another way.
#include "api/http/response_reader.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace belljar::api;
using State = ResponseReader::State;

struct Outcome {
  State state = State::kHead;
  int status = 0;
  std::string head, body, left;

  bool operator==(const Outcome&) const = default;
};

/// What becomes of bytes that come in pieces of `step`, and then end.
Outcome outcome_of(std::string_view bytes, std::size_t step, ResponseReader::Of method) {
  ResponseReader reader(method);
  Outcome outcome;
  std::string buffer;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    buffer += bytes.substr(at, step);
    reader.feed(buffer);
    outcome.body += reader.take_body();
  }
  outcome.state = reader.end();
  // Of one that turns out to be broken as much has been passed on as had come.
  if (outcome.state == State::kBroken) return {State::kBroken, 0, {}, {}, {}};
  outcome.body += reader.take_body();
  outcome.status = reader.head().status;
  for (const auto& [name, value] : reader.head().headers.all())
    outcome.head += name + ": " + value + '\n';
  outcome.left = buffer;
  return outcome;
}

void check_fields(std::string_view bytes, ResponseReader::Of method) {
  ResponseReader reader(method);
  std::string buffer(bytes);
  reader.feed(buffer);
  if (reader.state() != State::kBody && reader.state() != State::kDone) return;
  const Response& head = reader.head();
  FUZZ_CHECK(head.status >= 101 && head.status <= 999, std::to_string(head.status));
  for (const char* framing : {"content-length", "transfer-encoding", "connection", "keep-alive"})
    FUZZ_CHECK(head.status == 101 || head.headers.count(framing) == 0, framing);
  for (const auto& [name, value] : head.headers.all()) {
    FUZZ_CHECK(name.find_first_of("\r\n: ") == std::string::npos, name);
    FUZZ_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos, value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = belljar::fuzz::text_of(data, size);
  for (const auto method : {ResponseReader::Of::kOther, ResponseReader::Of::kHead}) {
    const Outcome whole = outcome_of(bytes, bytes.size() + 1, method);
    FUZZ_CHECK(outcome_of(bytes, 1, method) == whole);
    FUZZ_CHECK(outcome_of(bytes, 7, method) == whole);
    check_fields(bytes, method);
  }
  return 0;
}
