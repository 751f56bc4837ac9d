// Result and Status: how every room says "it worked" or "it did not, and here is what to do".
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace belljar {

/// What kind of failure it was; callers branch on this, never on the text.
enum class ErrorKind {
  kInvalid,      ///< The input (policy, command line, message) is wrong.
  kRefused,      ///< Belljar could go on, but what was asked for would not hold.
  kUnavailable,  ///< The host lacks something that the policy requires.
  kSystem,       ///< A system call failed; `sys_errno` says how.
};

/// One failure as data. `what` names the operation and its operands, `where` is the policy path
/// that asked for it (empty when none did), `remedy` is what a person should change.
struct Error {
  ErrorKind kind = ErrorKind::kSystem;
  int sys_errno = 0;
  std::string what;
  std::string where;
  std::string remedy;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

/// A failed system call: `sys_errno` with the operation and operands that it was about.
[[nodiscard]] inline tl::unexpected<Error> sys_failure(int sys_errno, std::string what) {
  return fail({ErrorKind::kSystem, sys_errno, std::move(what), {}, {}});
}

}  // namespace belljar

/// Evaluates `expr`; on failure returns its error from the enclosing function, otherwise yields the
/// value. Never around `co_await`: g++ 12 crashes on statement expressions in coroutines.
#define BELLJAR_TRY(expr)                                                                    \
  (__extension__({                                                                           \
    auto belljar_try_result = (expr);                                                        \
    if (!belljar_try_result) return ::tl::unexpected(std::move(belljar_try_result).error()); \
    std::move(belljar_try_result).value();                                                   \
  }))

/// BELLJAR_TRY for a Status, which has no value.
#define BELLJAR_CHECK(expr)                                                                      \
  do {                                                                                           \
    auto belljar_check_result = (expr);                                                          \
    if (!belljar_check_result) return ::tl::unexpected(std::move(belljar_check_result).error()); \
  } while (false)
