// Memory files that nobody can change any more.
#pragma once

#include <fcntl.h>

#include <cerrno>

namespace belljar {

/// F_ADD_SEALS (man 2 fcntl); false with errno set. A seal against writing is refused with EBUSY
/// while the kernel itself holds a page of the file for a moment, after waiting some 150 ms for it
/// (mm/memfd.c, memfd_wait_for_pins): asked for again then.
[[nodiscard]] inline bool add_seals(int fd, int seals) {
  constexpr int kMostTries = 10;
  for (int tries = 1;; ++tries) {
    if (::fcntl(fd, F_ADD_SEALS, seals) == 0) return true;
    if (errno != EBUSY || tries == kMostTries) return false;
  }
}

}  // namespace belljar
