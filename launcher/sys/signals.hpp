// The signals that a program was started with.
#pragma once

namespace belljar::sys {

/// Children are kept until they are waited for, whatever our caller ignores: an ignored SIGCHLD
/// outlives exec, and how a child has ended would be lost (man 2 wait). False when that could not
/// be had.
[[nodiscard]] bool expect_children();

}  // namespace belljar::sys
