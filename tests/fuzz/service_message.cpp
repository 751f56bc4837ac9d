// What the launch service reads of the daemon, and of the tars and bodies that come along: each is
// refused in words that can be sent back, or is what the protocol has.
#include <nlohmann/json.hpp>

#include "launcher/service/message.hpp"
#include "launcher/service/served_policies.hpp"
#include "launcher/service/tar.hpp"
#include "policy/base64.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace belljar::service;

void check_request(std::string_view text) {
  const auto request = read_request(text);
  if (!request) {
    const std::string body = error_body(request.error().fault);
    FUZZ_CHECK(nlohmann::json::accept(body), body);
    FUZZ_CHECK(nlohmann::json::accept(answer_text(7, body)), body);
    FUZZ_CHECK(body.size() < kLargestMessage / 2);
    return;
  }
  FUZZ_CHECK(descriptors_of(request->demand) <= kMostDescriptors);
  if (const auto* open = std::get_if<Open>(&request->demand)) {
    FUZZ_CHECK(is_workspace_name(open->workspace));
    FUZZ_CHECK(is_inner_path(open->path));
  }
  if (const auto* write = std::get_if<Write>(&request->demand)) FUZZ_CHECK(write->mode <= 0777);
}

void check_tar(std::string_view text) {
  if (text.size() >= kTarBlock)
    if (const auto entry = read_tar_header(text.substr(0, kTarBlock))) {
      FUZZ_CHECK(entry->mode <= 07777);
      FUZZ_CHECK(entry->path.size() <= 256);
    }
  if (const auto records = read_tar_records(text); records && records->path)
    FUZZ_CHECK(text.find(*records->path) != std::string_view::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = belljar::fuzz::text_of(data, size);
  check_request(text);
  check_tar(text);
  static_cast<void>(check_setting(std::string(text)));
  if (const auto bytes = belljar::policy::decode_base64(text))
    FUZZ_CHECK(belljar::policy::base64(*bytes) == text);
  return 0;
}
