// bwrap, as `belljar bwrap` and as a program of its own.
#pragma once

#include <string>
#include <vector>

namespace belljar::launcher::bwrap {

/// Runs what the words (without the program's name) say, and returns its exit status: 1 for
/// everything that is our own failure. sys::guard_descriptors has been called.
int run(const std::string& program, const std::vector<std::string>& words);

}  // namespace belljar::launcher::bwrap
