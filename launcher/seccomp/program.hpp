// A seccomp filter as the kernel takes it.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace belljar::launcher {

/// What the kernel calls this machine in seccomp_data (man 2 seccomp).
#if defined(__x86_64__)
inline constexpr std::uint32_t kNativeArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
inline constexpr std::uint32_t kNativeArchitecture = AUDIT_ARCH_AARCH64;
#endif

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
