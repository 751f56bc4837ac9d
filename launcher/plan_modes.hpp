// Enumerations that the plan and the child share.
#pragma once

namespace belljar::launcher {

/// What a procfs mount may end up as, strongest first.
enum class ProcMode { kFull, kFullReadOnly, kPids, kPidsReadOnly, kAbsent };

}  // namespace belljar::launcher
