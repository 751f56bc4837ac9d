// Names that the kernel gives to numbers, as far as policies use them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace belljar::policy {

struct NamedNumber {
  std::string_view name;
  std::uint64_t number;
};

/// "EPERM" -> 1, aliases included.
[[nodiscard]] std::span<const NamedNumber> errno_names();

/// "CAP_NET_ADMIN" -> 12; all of Linux 5.9 and later.
[[nodiscard]] std::span<const NamedNumber> capability_names();

/// "AF_UNIX", "CLONE_NEWUSER", "PROT_EXEC", ...: what conditions on system calls compare with.
[[nodiscard]] std::span<const NamedNumber> argument_names();

[[nodiscard]] const NamedNumber* find_name(std::span<const NamedNumber> names,
                                           std::string_view name);

/// `unknown errno "EPREM"; did you mean "EPERM"?`
[[nodiscard]] std::string unknown_name(std::string_view what, std::string_view name,
                                       std::span<const NamedNumber> names);

/// What the value of an rlimit counts, which decides how it is written.
enum class RlimitUnit { kBytes, kSeconds, kMicroseconds, kCount };

struct RlimitName {
  std::string_view name;
  RlimitUnit unit;
  std::uint64_t least;  ///< Below it nothing could run.
};

[[nodiscard]] std::span<const RlimitName> rlimit_names();

}  // namespace belljar::policy
