#include "api/self_test.hpp"

#include <nlohmann/json.hpp>

namespace belljar::api {

using supervisor::Awaitable;
namespace asio = boost::asio;

namespace {

/// "CONTROL: what" of the first that is missing.
std::string first_missing(const std::string& list) {
  const auto missing = nlohmann::json::parse(list, nullptr, false);
  if (!missing.is_array() || missing.empty() || !missing[0].is_object())
    return "the self-test failed";
  const auto text = [&missing](const char* name) {
    const auto found = missing[0].find(name);
    return found != missing[0].end() && found->is_string() ? found->get<std::string>() : "?";
  };
  return text("control") + ": " + text("what");
}

}  // namespace

SelfTestCache::SelfTestCache(std::shared_ptr<supervisor::Supervisor> supervisor)
    : supervisor_(std::move(supervisor)) {
  answer_.sandbox = "unavailable: not tested yet";
}

bool SelfTestCache::stale() const {
  return !tested_ || supervisor_->clock()->now() - *tested_ >= kFresh;
}

Awaitable<SelfTestCache::Answer> SelfTestCache::ask() {
  if (!supervisor_->service().sandboxed) {
    Answer off;
    off.ok = true;
    off.sandbox = "off";
    co_return off;
  }
  const auto executor = co_await asio::this_coro::executor;
  if (stale() && !running_) {
    running_ = true;
    asio::co_spawn(executor, run(), asio::detached);
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  asio::steady_timer pause(executor);
  while (running_ && stale() && std::chrono::steady_clock::now() < deadline) {
    pause.expires_after(std::chrono::milliseconds(20));
    co_await pause.async_wait(supervisor::kAsTuple);
  }
  Answer answer = answer_;
  if (tested_)
    answer.age =
        std::chrono::duration_cast<std::chrono::seconds>(supervisor_->clock()->now() - *tested_);
  co_return answer;
}

Awaitable<void> SelfTestCache::run() {
  const auto self = shared_from_this();
  const auto test = co_await supervisor_->self_test();
  running_ = false;
  tested_ = supervisor_->clock()->now();
  answer_.ok = test && test->ok;
  answer_.missing = test ? test->missing : "[]";
  if (answer_.ok)
    answer_.sandbox = "ok";
  else
    answer_.sandbox =
        "unavailable: " + (test ? first_missing(test->missing) : test.error().error.what);
}

}  // namespace belljar::api
