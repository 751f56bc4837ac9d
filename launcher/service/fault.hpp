// What the launch service answers when it does not do what was asked.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "policy/base/result.hpp"

namespace belljar::service {

/// Stable words that belljard branches on (docs/launch-service.md).
enum class Code {
  kInvalid,    ///< The request breaks the protocol.
  kNotInPool,  ///< That uid is not the service's to use.
  kBusy,       ///< The uid or the workspace is in use, or too much is asked for at once.
  kExists,
  kNotFound,
  kRefused,  ///< Policy, ceiling, or a kind of file that is not touched.
  kDenied,   ///< The session's own uid may not.
  kChanged,  ///< The file is no longer the one that was meant.
  kTooLarge,
  kTimeout,
  kNoSpace,
  kSystem,  ///< A system call failed: `sys_errno`.
};

/// "not_in_pool"
[[nodiscard]] const char* code_name(Code code);

/// `message` names the operands and, where there is one, the remedy.
struct Fault {
  Code code = Code::kSystem;
  std::string message;
  int sys_errno = 0;
};

template <class T>
using Outcome = tl::expected<T, Fault>;

[[nodiscard]] tl::unexpected<Fault> refuse(Code code, std::string message);

/// A failed call, `what` naming it and its operands; the code follows from the errno.
[[nodiscard]] tl::unexpected<Fault> call_failed(int sys_errno, const std::string& what);

/// The same failure as the launcher has it.
[[nodiscard]] Fault fault_of(const Error& error);

}  // namespace belljar::service
