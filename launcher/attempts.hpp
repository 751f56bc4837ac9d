// What a policy's own tests try, from inside the sandbox.
#pragma once

#include <string>

namespace belljar::launcher {

inline constexpr const char* kGranted = "allowed";
/// Nothing came back in time: neither allowed nor denied.
inline constexpr const char* kUnanswered = "unanswered";

/// Tries "read /PATH", "write /PATH", "exec /PATH" or "connect ADDRESS:PORT" without harm: nothing
/// is read, written, or run, and no byte is sent. The answer is kGranted, kUnanswered, or the
/// errno of the refusal ("EROFS").
[[nodiscard]] std::string attempt(const std::string& text);

}  // namespace belljar::launcher
