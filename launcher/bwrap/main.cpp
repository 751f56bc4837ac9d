// The program `bwrap`: a file of its own, because callers execute /proc/self/exe with bwrap's
// options, where no name tells which of two programs is meant.
#include <malloc.h>

#include <cstdio>

#include "launcher/bwrap/command.hpp"
#include "launcher/sys/descriptors.hpp"
#include "launcher/sys/signals.hpp"

int main(int argc, char** argv) {
  // One launch a process: memory is taken in one piece and never given back before the end.
  mallopt(M_TOP_PAD, 512 << 10);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  if (argc < 1) return 1;
  if (!belljar::sys::guard_descriptors()) {
    std::perror("bwrap: no /proc, or no /dev/null for a closed stream");
    return 1;
  }
  if (!belljar::sys::expect_children()) {
    std::perror("bwrap: cannot expect children");
    return 1;
  }
  return belljar::launcher::bwrap::run(argv[0], {argv + 1, argv + argc});
}
