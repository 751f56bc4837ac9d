// The evaluator, and what it is fed with.
#pragma once

#include <initializer_list>

#include "launcher/seccomp/evaluate.hpp"

namespace belljar::test {

using launcher::evaluate;
using launcher::Evaluation;

inline seccomp_data make_data(std::uint32_t architecture, int number,
                              std::initializer_list<std::uint64_t> arguments = {}) {
  seccomp_data data{};
  data.arch = architecture;
  data.nr = number;
  std::size_t i = 0;
  for (const std::uint64_t argument : arguments) data.args[i++] = argument;
  return data;
}

}  // namespace belljar::test
