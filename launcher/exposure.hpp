// What a command could reach under a plan, told without running anything: `belljar explain
// --exposure`.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "policy/base/result.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

enum class ExposureKind {
  kUnixSocket,
  kAbstractSocket,
  kFifo,
  kDevice,
  kPrivilegedFile,  ///< setuid, setgid, file capabilities.
  kWritableOnPath,
  kSecretFile,
  kSecretVariable,
};

/// "unix-socket", as in the JSON.
[[nodiscard]] const char* exposure_name(ExposureKind kind);

struct Finding {
  ExposureKind kind = ExposureKind::kUnixSocket;
  std::string what;    ///< A path inside, or a name.
  std::string worth;   ///< What it gives, in one clause.
  std::string policy;  ///< The line that shows it.
  std::string change;  ///< What hides it, for --set.

  bool operator==(const Finding&) const = default;
};

struct Exposure {
  std::vector<Finding> findings;           ///< By kind, then by name.
  std::uint64_t entries = 0;               ///< How many were looked at.
  std::uint64_t unlisted = 0;              ///< Directories that can be passed, but not listed.
  std::vector<std::string> not_looked_at;  ///< What was left out, and why; empty: nothing.
};

struct ExposureBounds {
  std::uint64_t entries = 2'000'000;
  std::chrono::milliseconds time{30'000};
  std::size_t findings = 1000;
};

/// Walks what the plan shows of the host, as the session's uid, so that owner, mode and ACL decide
/// as they would inside. Follows no link, opens nothing but directories. Errors: the session's ids
/// cannot be taken.
[[nodiscard]] Result<Exposure> find_exposure(const Plan& plan, const policy::Policy& policy,
                                             const Host& host, const ExposureBounds& bounds = {});

[[nodiscard]] std::string exposure_text(const Exposure& exposure, const Plan& plan,
                                        const policy::Policy& policy);
[[nodiscard]] std::string exposure_json(const Exposure& exposure, const Plan& plan,
                                        const policy::Policy& policy);

}  // namespace belljar::launcher
