// The launcher's own /proc, by descriptor.
#pragma once

namespace belljar::sys {

/// An O_PATH descriptor of /proc, opened once and kept for the life of the process; -1, with errno
/// set, when there is none.
[[nodiscard]] int proc_directory();

/// Opens it again, for a caller that has put something else on its number.
void reopen_proc_directory();

}  // namespace belljar::sys
