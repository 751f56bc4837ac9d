// What a relay says to its client: one JSON object a frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belljar::api {

inline constexpr std::size_t kMostFrame = std::size_t{1} << 20;  ///< Clients end beyond it.
inline constexpr std::size_t kMostLine = std::size_t{64} << 10;  ///< Longer ones come in pieces.

/// {"type": "stdout", "line": …}
[[nodiscard]] std::string stdout_frame(std::string_view line);
/// {"type": "state_change", "state": …, "_source": "log_state"}
[[nodiscard]] std::string state_frame(std::string_view state);
/// {"type": "error", "message": …}
[[nodiscard]] std::string error_frame(std::string_view message);
/// {"type": "exit", "cause": …, "exit_code": …, "signal": …}: of a type that editors ignore.
[[nodiscard]] std::string exit_frame(std::string_view cause, std::optional<int> exit_code,
                                     std::optional<int> signal);

/// The state that a line of the framework's log says is entered: "[name] Running body".
[[nodiscard]] std::optional<std::string_view> entered_state(std::string_view line);

/// The frames of one line: a change of state comes before the line that tells it.
[[nodiscard]] std::vector<std::string> frames_of_line(std::string_view line);

/// Cuts a stream into lines without their ends and trailing blanks.
class LineCutter {
 public:
  /// The lines that `bytes` completes.
  [[nodiscard]] std::vector<std::string> add(std::string_view bytes);
  /// What is left at the end, or before a gap, where anything is.
  [[nodiscard]] std::optional<std::string> rest();

 private:
  std::string take();

  std::string held_;
};

/// `bytes` as UTF-8: what is none is replaced.
[[nodiscard]] std::string as_text(std::string_view bytes);

}  // namespace belljar::api
