// What a call of the supervisor failed with: an Error with a stable code for machines.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "policy/base/result.hpp"

namespace belljar::supervisor {

/// Stable: api/ maps each to one HTTP status, and shows `code_name` to clients. The status named
/// here is the one that /v1 gives.
enum class Code {
  kInvalid,        ///< 422 The request breaks a rule; `error.where` is a JSON pointer where known.
  kBeyondMaximum,  ///< 422 More than the operator's maximum; `limit` is that maximum.
  kExists,         ///< 409 A session of that id is live, or a file that must not be there is.
  kNotFound,       ///< 404 No such session, process, policy or file.
  kConflict,       ///< 409 Not in this state: a wrong stdin offset, a key with another body.
  kShellBusy,      ///< 409 Too many commands wait for the session's shell.
  kEnded,          ///< 409 The session or process is ending or has ended.
  kPrecondition,   ///< 412 The file is not the one that if_match names.
  kCapacity,       ///< 503 (429 on the simulator face) Every slot is in use or quarantined.
  kQuota,          ///< 429 The client has its share; `limit` is that share.
  kBusy,           ///< 503 Too many starts at once, a full queue, or the service says so.
  kDraining,       ///< 503 The daemon is going down.
  kUnavailable,    ///< 503 The launch service is gone.
  kSandbox,        ///< 503 The sandbox could not be built; `setup` says which step, as JSON.
  kRefused,        ///< 403 The policy or the operator's ceiling says no.
  kDenied,         ///< 403 The session's own uid may not.
  kTooLarge,       ///< 413
  kNoSpace,        ///< 507
  kTimeout,        ///< 504 It did not answer in time.
  kPortClosed,     ///< 502 Nothing of this session listens on that port.
  kLost,           ///< 502 The monitor or the service died while it was asked.
  kSystem,         ///< 500 A system call failed; `error.sys_errno` where it is known.
};

/// "capacity", "not_found"
[[nodiscard]] std::string_view code_name(Code code);

struct Failure {
  Code code = Code::kSystem;
  Error error;
  std::string setup;  ///< kSandbox: the record's `setup` object as JSON text; empty elsewhere.
  std::optional<std::uint64_t> limit;
  std::optional<int> exit_code;  ///< Of a process that could not be started: 125, 126 or 127.
  std::optional<std::chrono::seconds> retry_after;
};

/// What every call of the supervisor that can fail returns.
template <class T>
using Outcome = tl::expected<T, Failure>;

/// A failure with a code, what was asked with its operands, and what to do about it.
[[nodiscard]] tl::unexpected<Failure> refuse(Code code, std::string what, std::string remedy = {});
/// The name of a failure for events and the audit: its code's, but of a sandbox that was not built
/// for a fault of the request's what clients are told, "not_executable", "beyond_maximum" or
/// "refused".
[[nodiscard]] std::string_view fault_name(const Failure& failure);
/// A failed system call, with its operands.
[[nodiscard]] tl::unexpected<Failure> sys_refusal(int sys_errno, std::string what);

}  // namespace belljar::supervisor

/// Leaves a coroutine with the failure of `named`, an Outcome that already has a name: g++ 12 does
/// not take `co_await` inside of statement expressions.
#define BELLJAR_CO_TRY(named) \
  if (!(named)) co_return ::tl::unexpected(std::move(named).error())
