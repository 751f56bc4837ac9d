// Whether the sandbox works here and now, asked often and found out rarely.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "supervisor/supervisor.hpp"

namespace belljar::api {

/// The last answer of the service's self-test, with its age. A host that breaks or heals is noticed
/// by whoever asks, and no more often than once in `kFresh`.
class SelfTestCache : public std::enable_shared_from_this<SelfTestCache> {
 public:
  static constexpr std::chrono::seconds kFresh{60};
  /// Who asks waits no longer than this; the test goes on and is there for the next one.
  static constexpr std::chrono::milliseconds kPatience{4000};

  explicit SelfTestCache(std::shared_ptr<supervisor::Supervisor> supervisor);

  struct Answer {
    Answer() = default;
    bool ok = false;
    std::string sandbox;                      ///< "ok", "off", or "unavailable: …".
    std::optional<std::chrono::seconds> age;  ///< Nothing: there is no answer yet.
    std::string missing = "[]";               ///< What is not in force, as the service says it.
  };
  [[nodiscard]] supervisor::Awaitable<Answer> ask();

 private:
  supervisor::Awaitable<void> run();
  [[nodiscard]] bool stale() const;

  std::shared_ptr<supervisor::Supervisor> supervisor_;
  std::optional<supervisor::TimePoint> tested_;
  bool running_ = false;
  Answer answer_;
};

}  // namespace belljar::api
