// A seccomp filter as the kernel takes it.
#pragma once

#include <linux/filter.h>

#include <span>
#include <utility>
#include <vector>

namespace belljar::launcher {

/// A filter that was compiled in this process.
struct SeccompProgram {
  std::vector<sock_filter> instructions;
};

/// A filter that is ready for seccomp(SECCOMP_SET_MODE_FILTER): either one of the built-in arrays,
/// which are never copied, or a program of its own. Copies and moves are safe.
class SeccompFilter {
 public:
  explicit SeccompFilter(std::span<const sock_filter> built_in) : built_in_(built_in) {}
  explicit SeccompFilter(SeccompProgram program) : program_(std::move(program)) {}

  /// Valid as long as this object is; never empty.
  [[nodiscard]] std::span<const sock_filter> instructions() const {
    return built_in_.empty() ? std::span<const sock_filter>(program_.instructions) : built_in_;
  }

 private:
  std::span<const sock_filter> built_in_;
  SeccompProgram program_;
};

}  // namespace belljar::launcher
