// What belljarctl could not do, as data.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace belljar::ctl {

/// How an attempt failed; callers branch on this and on `code`, never on the text.
enum class FailureKind {
  kUsage,        ///< The command line asks for what cannot be.
  kUnreachable,  ///< Nobody answers where the daemon should be.
  kBroken,       ///< The connection ended, or went silent, before all was said.
  kProblem,      ///< The daemon's refusal: `status` and `code`.
  kLocal,        ///< A file, a terminal or a system call of this machine's.
};

struct Failure {
  FailureKind kind = FailureKind::kLocal;
  std::string what;
  std::string remedy;
  int status = 0;    ///< HTTP's, of a problem.
  std::string code;  ///< The problem's: "not_found".
  std::string request;
  int exit_code = 0;  ///< Of a command that was not started: 126, 127; 0: none is told.
  std::vector<std::string> details;  ///< Of members: "/limits/memory: expected a size".
};

template <class T>
using Outcome = tl::expected<T, Failure>;
using Done = Outcome<void>;

[[nodiscard]] tl::unexpected<Failure> failed(FailureKind kind, std::string what,
                                             std::string remedy = {});
/// A failed system call, with its operands.
[[nodiscard]] tl::unexpected<Failure> call_failed(int error, std::string what);

/// The failure that an answer of the daemon's is: a problem (RFC 9457), or whatever came instead.
[[nodiscard]] Failure problem_of(int status, std::string_view body);

/// As it is said on standard error: what is wrong, what to do, and the code, a line each.
[[nodiscard]] std::string failure_text(const Failure& failure);

/// One line on standard error, after "belljarctl: ".
void say(std::string_view line);

}  // namespace belljar::ctl
