// The shell of a session: a fresh bash for each command, whose directory and exported variables are
// those that the command before it left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "supervisor/core.hpp"
#include "supervisor/session.hpp"

namespace belljar::supervisor {

/// What bash has told of its state at the end of a command.
struct ShellReport {
  std::optional<std::vector<std::string>> first_names;  ///< Exported before the first command.
  bool directory_lost = false;                    ///< Where it was to begin could not be entered.
  std::optional<std::string> directory, exports;  ///< Nothing: it did not come to that.
};

/// Reads what the trap of kShellScript has written. Commands can write there too, so anything that
/// is not a report is none.
[[nodiscard]] ShellReport parse_shell_report(std::string_view text);

/// `text` as one word of a shell.
[[nodiscard]] std::string shell_quoted(std::string_view text);

/// The state between commands. It stays where it is when a command replaces bash (exec), takes away
/// its trap, or is killed.
class Shell {
 public:
  static constexpr std::size_t kMostWaiting = 8;
  static constexpr std::size_t kMostVariables = 1000;
  static constexpr std::size_t kMostState = std::size_t{256} << 10;  ///< Bytes of `export -p`.

  /// `own_directory` is the session's alone, and named like no other's.
  Shell(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
        std::string own_directory);

  /// See Session::run_in_shell. The session holds the shell.
  [[nodiscard]] Awaitable<Outcome<ShellResult>> run(std::shared_ptr<Session> session,
                                                    ShellCommand command);

  /// Bytes that it holds between commands.
  [[nodiscard]] std::size_t memory() const;
  /// The session is over: its state is nobody's any more.
  void forget();

 private:
  /// What bash does before the command: unsets, exports, changes directory.
  [[nodiscard]] std::string preparation(const Session& session, const ShellCommand& command) const;
  void adopt(const Session& session, const ShellReport& report, bool moved,
             std::vector<std::string>& notes);
  void take_first_names(const ShellReport& report, std::vector<std::string>& notes);
  [[nodiscard]] Outcome<void> go_on_from(const std::string& state, std::uint16_t port);
  [[nodiscard]] std::string state() const;

  StartQueue queue_;
  std::string own_directory_;
  std::optional<std::string> directory_;  ///< Nothing: the workspace.
  std::optional<std::vector<std::string>> first_names_;
  std::string exports_;
  bool forgotten_ = false;
};

}  // namespace belljar::supervisor
