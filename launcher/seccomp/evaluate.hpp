// Runs a seccomp filter in user space, as net/core/filter.c and kernel/seccomp.c do.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace belljar::launcher {

struct Evaluation {
  std::uint32_t value = 0;  ///< What the filter returned: SECCOMP_RET_… and its data.
  std::size_t steps = 0;    ///< Instructions that ran.
};

/// nullopt: the program left its bounds or holds an instruction that the kernel would refuse.
inline std::optional<Evaluation> evaluate(std::span<const sock_filter> program,
                                          const seccomp_data& data) {
  std::uint32_t accumulator = 0;
  std::size_t at = 0;
  for (std::size_t steps = 1; at < program.size(); ++steps) {
    const sock_filter& instruction = program[at++];
    const std::uint32_t k = instruction.k;
    const auto branch = [&](bool holds) { at += holds ? instruction.jt : instruction.jf; };
    switch (instruction.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (k % 4 != 0 || k >= sizeof data) return std::nullopt;
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + k, sizeof accumulator);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= k;
        break;
      case BPF_JMP | BPF_JA:
        at += k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        branch(accumulator == k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        branch(accumulator > k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        branch(accumulator >= k);
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        branch((accumulator & k) != 0);
        break;
      case BPF_RET | BPF_K:
        return Evaluation{k, steps};
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace belljar::launcher
