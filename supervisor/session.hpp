// Session and Process: one sandbox over time, and what runs in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/base/unique_fd.hpp"
#include "supervisor/asio.hpp"
#include "supervisor/clock.hpp"
#include "supervisor/failure.hpp"
#include "supervisor/journal.hpp"
#include "supervisor/owner.hpp"
#include "supervisor/slots.hpp"

namespace belljar::supervisor {

/// Who or what ended a session; by name the `by` of a record with cause `killed`, or its cause.
enum class EndedBy {
  kClient,
  kOperator,
  kDrain,
  kDaemon,  ///< By itself: it does not do what it was made for.
  kExpired,
  kIdle,
  kOwnerGone,
  kWorkspaceGone
};
/// "client", "expired"
[[nodiscard]] std::string_view ended_by_name(EndedBy by);

/// The number of "SIGTERM" or "TERM"; nothing where no signal has that name.
[[nodiscard]] std::optional<int> signal_number(std::string_view name);

struct TerminalSize {
  std::uint16_t columns = 80, rows = 24;
};

/// How a session or a process ended. `record` is the launcher's own, as one JSON object; where
/// nobody told how it ended (`cause` "lost"), it is made here and holds only what is known.
struct End {
  std::string cause;  ///< "exited", "signaled", "wall_time", "setup", "killed", "expired", "lost"…
  std::optional<int> exit_code, signal;
  std::string record;
  WallTime time;
};

/// How to start one process. Maps are what the process gets, nothing is inherited.
struct ProcessSpec {
  std::vector<std::string> argv;
  std::vector<std::string> shown_argv;  ///< What people are told that it runs; empty: `argv`.
  std::map<std::string, std::string> environment;
  std::string directory;  ///< Empty: the sandbox's own.
  enum class Stdin { kNone, kOpen };
  Stdin stdin_mode = Stdin::kNone;             ///< kNone: end of file at once.
  std::string stdin_text;                      ///< Written first; with kNone the end follows.
  std::shared_ptr<const UniqueFd> stdin_file;  ///< Is its stdin, with kNone and no text.
  std::optional<TerminalSize> terminal;        ///< One stream, called stdout, and an open stdin.
  /// What it leaves behind may go on writing: its journals are finished when nobody can any more.
  bool keeps_output = false;
  bool merge_output = false;  ///< stderr goes where stdout goes, in the order written.
  std::optional<Milliseconds> wall_time;
  std::optional<std::uint64_t> output;  ///< Bytes it may write; beyond, it ends with cause output.
  JournalLimits journal;
};

/// A file or directory that a workspace starts with.
struct WorkspaceFile {
  std::string path;
  std::string content;
  std::uint32_t mode = 0600;
  bool directory = false;  ///< `content` is not looked at.
};

/// A directory that is there already, for a session to work in. It stays when the session goes;
/// HOME is a directory of the session's own.
struct ExistingWorkspace {
  std::string path;    ///< Absolute, below one of the operator's workspace roots.
  bool chown = false;  ///< It and what is in it become the session's; otherwise it has to be.
};

/// Where a session is to be, known once its slot is leased.
struct Place {
  std::uint32_t uid = 0;
  std::uint16_t port = 0;
  std::string workspace;  ///< Absolute path on the host.
};

/// How to start one session.
struct SessionSpec {
  std::string id;      ///< 1 to 64 of A-Za-z0-9_-; empty: one is made up, with the node's part.
  std::string client;  ///< Whom quota and audit count it for.
  std::map<std::string, std::string> labels;

  std::string policy;         ///< The name of a served policy; empty: the operator's default.
  std::string policy_digest;  ///< Refused when it is another by now; empty: any.
  std::vector<std::string> settings;             ///< "limits.memory=512MiB", as of --set.
  std::map<std::string, std::string> variables;  ///< The policy's.
  /// Of each process, the command's own among them.
  std::map<std::string, std::string> environment;
  std::vector<WorkspaceFile> files;  ///< None with an existing workspace.
  std::optional<ExistingWorkspace> workspace;

  std::optional<ProcessSpec> command;  ///< Process 0; its end is the session's. Absent: none, and
                                       ///< the session stays until it is ended.
  std::optional<Milliseconds> ttl;     ///< Absent: the default. Beyond the maximum: kBeyondMaximum.
  std::optional<Milliseconds> idle;    ///< Absent: never.
  std::shared_ptr<Owner> owner;        ///< Ends with him, once his grace is over. Absent: nobody.
  std::optional<std::chrono::milliseconds> term_grace;  ///< 0 to 4 s; absent: the default.
  bool one_shot = false;  ///< /v1/run: counted against max_runs, and not kept after its end.

  /// Called once, when uid, port and path are known and before anything is made; may still change
  /// files, settings, command. Its failure is that of `create`, and nothing is left.
  std::function<Outcome<void>(SessionSpec&, const Place&)> complete;
};

class Core;
class Process;
class Session;

/// A command of a session's shell.
struct ShellCommand {
  std::string text;                  ///< As typed: any number of lines.
  std::optional<std::string> state;  ///< A ShellResult's: the shell goes on from there.
  /// How it is run: `argv` is not looked at; variables are exported, and stay; a `directory` is for
  /// this command alone.
  ProcessSpec process;
  bool background = false;  ///< Answered when it has started; runs beside the others.
  std::function<void(std::shared_ptr<Process>)> started;  ///< Told before it is waited for.
};

struct ShellResult {
  std::shared_ptr<Process> process;
  std::string directory;           ///< Where the next command begins.
  std::vector<std::string> notes;  ///< What was not as the command would expect, in words.
  std::string state;               ///< Directory and variables, for another shell to go on from.
};

/// One command of a session. Held by the session; whoever else holds one may ask it anything at any
/// time, also after its end.
class Process : public std::enable_shared_from_this<Process> {
 public:
  enum class State { kStarting, kRunning, kStopped, kEnded };
  virtual ~Process() = default;

  [[nodiscard]] virtual std::uint32_t id() const = 0;  ///< 0 is the session's own command.
  [[nodiscard]] virtual const std::vector<std::string>& argv() const = 0;
  [[nodiscard]] virtual bool of_shell() const = 0;  ///< It is a command of the session's shell.
  [[nodiscard]] virtual State state() const = 0;
  [[nodiscard]] virtual int pid() const = 0;  ///< Inside; 0 where it is not known.
  [[nodiscard]] virtual WallTime started() const = 0;
  /// Nothing until its end. By then its journals are finished, unless it keeps its output.
  [[nodiscard]] virtual const std::optional<End>& end_record() const = 0;
  /// How much of its journals was its own: what was written when it ended.
  struct Offsets {
    std::uint64_t out = 0, err = 0;
  };
  [[nodiscard]] virtual Offsets end_offsets() const = 0;

  /// With `merge_output` or a terminal both are one journal.
  [[nodiscard]] virtual std::shared_ptr<Journal> out() const = 0;
  [[nodiscard]] virtual std::shared_ptr<Journal> err() const = 0;

  /// Until its end, at most `limit`; whether it has ended.
  [[nodiscard]] virtual Awaitable<bool> wait(Milliseconds limit) = 0;

  enum class Target { kLeader, kGroup, kTree };
  [[nodiscard]] virtual Awaitable<Outcome<void>> signal(int number, Target to) = 0;
  /// TERM to its group (and CONT, for one that is stopped), the session's grace, then the whole
  /// tree is killed. Whether it had ended when this answers, at most a second after the grace. Of
  /// process 0: ends the session.
  [[nodiscard]] virtual Awaitable<Outcome<bool>> end() = 0;
  [[nodiscard]] virtual Awaitable<Outcome<void>> resize(TerminalSize size) = 0;

  /// `bytes` are those from `offset` of its stdin on; what it has already is not written again,
  /// and an offset behind it is kConflict. Without an offset: next. Answers when all of it has been
  /// taken, with the offset after it; one writer at a time (kBusy).
  [[nodiscard]] virtual Awaitable<Outcome<std::uint64_t>> write_stdin(
      std::string bytes, std::optional<std::uint64_t> offset) = 0;
  /// A write under way that waits for the program answers with kTimeout, and says how far it came.
  virtual void stop_writing() = 0;
  [[nodiscard]] virtual Outcome<void> close_stdin() = 0;
};

struct Entry {
  std::string path;  ///< Relative; raw bytes, not always UTF-8.
  enum class Type { kFile, kDirectory, kOther };
  Type type = Type::kFile;
  std::uint64_t size = 0;
  std::uint32_t mode = 0;
  std::chrono::milliseconds modified{0};  ///< Since the epoch.
  std::optional<std::string> content;     ///< Raw bytes, where it was asked for and fits.
  bool too_large = false;                 ///< It was asked for and does not fit.
};

struct Listing {
  std::vector<Entry> entries;  ///< Top-down; of each directory its files by name, then the rest.
  bool truncated = false;      ///< More than the service lists, or than `total` holds.
};

struct ListRequest {
  ListRequest() = default;
  explicit ListRequest(std::string where) : path(std::move(where)) {}
  std::string path;  ///< Empty: all of the workspace.
  std::uint32_t depth = 64;
  std::uint64_t content = 0;                      ///< Bytes of each file's content; 0: none.
  std::uint64_t total = std::uint64_t{16} << 20;  ///< Of all contents together.
  std::vector<std::string> skip;                  ///< Names of directories, at any depth.
};

struct OpenFile {
  UniqueFd descriptor;  ///< Of a regular file, for reading.
  std::uint64_t size = 0;
  std::uint32_t mode = 0;
  std::chrono::milliseconds modified{0};
  std::string etag;  ///< What `if_match` of a later write may name.
};

inline constexpr char kEndMark = '.';

struct WriteRequest {
  WriteRequest() = default;
  explicit WriteRequest(std::string where) : path(std::move(where)) {}
  std::string path;
  std::uint32_t mode = 0600;
  std::string if_match;  ///< Empty: whatever is there.
  bool parents = false;  ///< Makes missing directories.
  /// The source is a pipe that ends with kEndMark, which is not of the file. One that ends without
  /// has lost its writer, and changes nothing.
  bool marked = false;
};

struct Written {
  std::uint64_t size = 0;
  bool created = false;
};

/// While one exists its session is not idle.
class Attachment {
 public:
  Attachment() = default;
  explicit Attachment(std::shared_ptr<Session> session);
  Attachment(Attachment&& other) noexcept = default;
  Attachment& operator=(Attachment&& other) noexcept;
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() { release(); }

 private:
  void release();
  std::shared_ptr<Session> session_;
};

/// One sandbox over time. It goes through its states in order and gives slot, workspace, processes
/// and descriptors back exactly once. Whoever holds one may ask it anything at any time; after its
/// end calls that need the sandbox fail with kEnded.
class Session : public std::enable_shared_from_this<Session> {
 public:
  enum class State { kStarting, kRunning, kEnding, kEnded };
  virtual ~Session() = default;

  // What it is. None of these waits.
  [[nodiscard]] virtual const std::string& id() const = 0;
  [[nodiscard]] virtual State state() const = 0;
  [[nodiscard]] virtual const std::string& client() const = 0;
  [[nodiscard]] virtual std::uint32_t uid() const = 0;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual const std::string& workspace() const = 0;  ///< Absolute path.
  [[nodiscard]] virtual const std::string& policy() const = 0;
  [[nodiscard]] virtual const std::string& policy_digest() const = 0;
  /// What each of its processes may take: its policy's own, or less where a setting says so.
  struct Limits {
    std::optional<Milliseconds> wall_time;
    std::optional<std::uint64_t> output;
    /// What its policy sets, and no process may set otherwise.
    std::map<std::string, std::string> fixed_variables;
  };
  [[nodiscard]] virtual const Limits& limits() const = 0;  ///< Known from its start on.
  /// What was set over its policy, as it was asked for: "limits.memory=512MiB".
  [[nodiscard]] virtual const std::vector<std::string>& settings() const = 0;
  [[nodiscard]] virtual const std::string& back_end() const = 0;
  [[nodiscard]] virtual const std::string& degraded() const = 0;  ///< JSON array as text.
  [[nodiscard]] virtual int init_pid() const = 0;                 ///< On the host; 0: none yet.
  [[nodiscard]] virtual WallTime created() const = 0;
  [[nodiscard]] virtual std::optional<WallTime> expires() const = 0;
  [[nodiscard]] virtual std::optional<Milliseconds> idle_after() const = 0;
  [[nodiscard]] virtual const std::map<std::string, std::string>& labels() const = 0;
  virtual void set_labels(std::map<std::string, std::string> labels) = 0;
  /// Nothing until its end. Of a session that was ended by a call: who did it is in the record.
  [[nodiscard]] virtual const std::optional<End>& end_record() const = 0;

  // How long it lasts.
  /// Forward only: at least `for_time` from now, bounded by the maximum (kBeyondMaximum).
  [[nodiscard]] virtual Outcome<void> keep_alive(Milliseconds for_time) = 0;
  /// Outright: PATCH. Nothing: the maximum age.
  [[nodiscard]] virtual Outcome<void> set_ttl(std::optional<Milliseconds> from_now) = 0;
  [[nodiscard]] virtual Outcome<void> set_idle(std::optional<Milliseconds> idle) = 0;
  /// It is in use now. Every call below does this by itself.
  virtual void touch() = 0;
  /// For relays and attached clients.
  [[nodiscard]] Attachment attach() { return Attachment(shared_from_this()); }

  /// Until its end, at most `limit`; whether it has ended.
  [[nodiscard]] virtual Awaitable<bool> wait_ended(Milliseconds limit) = 0;

  // Processes.
  [[nodiscard]] virtual std::vector<std::shared_ptr<Process>> processes() const = 0;
  /// Null where there is none, or it ended long ago.
  [[nodiscard]] virtual std::shared_ptr<Process> process(std::uint32_t id) const = 0;
  [[nodiscard]] virtual Awaitable<Outcome<std::shared_ptr<Process>>> start(ProcessSpec spec) = 0;

  /// One after another, each in the directory and with the exported variables that the one before
  /// it left. Answers at its end, however it ended. kShellBusy: too many wait.
  [[nodiscard]] virtual Awaitable<Outcome<ShellResult>> run_in_shell(ShellCommand command) = 0;

  // Ports.
  /// Whether something of this session's uid listens on TCP `port` in its network. Looks at the
  /// kernel's table: nobody is connected to.
  [[nodiscard]] virtual bool listens(std::uint16_t port) const = 0;
  [[nodiscard]] virtual Awaitable<Outcome<void>> wait_listening(std::uint16_t port,
                                                                Milliseconds limit) = 0;
  /// A socket to 127.0.0.1:port inside, connected or connecting, non-blocking. kPortClosed where
  /// nothing of this session's uid listens there.
  [[nodiscard]] virtual Awaitable<Outcome<UniqueFd>> connect(std::uint16_t port) = 0;

  // Files of the workspace, by the service and under the session's uid. Paths are relative.
  [[nodiscard]] virtual Awaitable<Outcome<Listing>> list(ListRequest request) = 0;
  [[nodiscard]] virtual Awaitable<Outcome<OpenFile>> open(std::string path) = 0;
  /// `source` is read to its end: a file, a memfd or a pipe. The old file stays until all is there.
  [[nodiscard]] virtual Awaitable<Outcome<Written>> write(WriteRequest request,
                                                          UniqueFd source) = 0;
  /// Of an existing workspace: what others have added since becomes the session's.
  [[nodiscard]] virtual Awaitable<Outcome<void>> claim() = 0;
  enum class Recursive { kNo, kYes };
  /// `if_match`: of a file whose `OpenFile::etag` it is, and nothing else (kPrecondition); empty:
  /// whatever is there.
  [[nodiscard]] virtual Awaitable<Outcome<void>> remove(std::string path, Recursive recursive,
                                                        std::string if_match) = 0;
  /// A tar goes to or comes from `pipe`; answers at its end.
  enum class Way { kOut, kIn };
  [[nodiscard]] virtual Awaitable<Outcome<void>> archive(std::string path, Way way,
                                                         UniqueFd pipe) = 0;

 private:
  friend class Attachment;
  virtual void attached(int change) = 0;
};

}  // namespace belljar::supervisor
