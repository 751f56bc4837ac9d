// Session and Process as they are. Internal.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/core.hpp"
#include "supervisor/shell.hpp"
#include "supervisor/streams.hpp"

namespace belljar::supervisor {

/// Reads an end from a record; anything that is no record is `lost`.
[[nodiscard]] End end_of(const Json& record, WallTime time);
/// An end that nobody told.
[[nodiscard]] End made_up_end(const std::string& cause, const std::string& by, WallTime time);

class SessionImpl;

class ProcessImpl final : public Process {
 public:
  ProcessImpl(const std::shared_ptr<SessionImpl>& session, std::uint32_t id, ProcessSpec spec);

  [[nodiscard]] std::uint32_t id() const override { return id_; }
  [[nodiscard]] const std::vector<std::string>& argv() const override {
    return spec_.shown_argv.empty() ? spec_.argv : spec_.shown_argv;
  }
  [[nodiscard]] bool of_shell() const override { return !spec_.shown_argv.empty(); }
  [[nodiscard]] Offsets end_offsets() const override { return end_offsets_; }
  [[nodiscard]] State state() const override { return state_; }
  [[nodiscard]] int pid() const override { return pid_; }
  [[nodiscard]] WallTime started() const override { return started_; }
  [[nodiscard]] const std::optional<End>& end_record() const override { return end_; }
  [[nodiscard]] std::shared_ptr<Journal> out() const override { return out_; }
  [[nodiscard]] std::shared_ptr<Journal> err() const override { return err_; }
  [[nodiscard]] Awaitable<bool> wait(Milliseconds limit) override;
  [[nodiscard]] Awaitable<Outcome<void>> signal(int number, Target to) override;
  [[nodiscard]] Awaitable<Outcome<bool>> end() override;
  [[nodiscard]] Awaitable<Outcome<void>> resize(TerminalSize size) override;
  [[nodiscard]] Awaitable<Outcome<std::uint64_t>> write_stdin(
      std::string bytes, std::optional<std::uint64_t> offset) override;
  void stop_writing() override;
  [[nodiscard]] Outcome<void> close_stdin() override;

  // For its session.
  [[nodiscard]] const ProcessSpec& spec() const { return spec_; }
  /// Makes its pipes and begins to read them; what is returned goes to the sandbox: stdin, stdout,
  /// stderr.
  [[nodiscard]] Outcome<std::vector<UniqueFd>> make_streams();
  [[nodiscard]] Outcome<void> take_terminal(UniqueFd master);
  void running(int pid);
  /// It may write `most` bytes, or what its own limit says, if that is less.
  void limit_output(std::optional<std::uint64_t> most);
  /// Whether its start is still to be told: once.
  [[nodiscard]] bool start_untold() { return !std::exchange(start_told_, true); }
  void stopped(bool stopped);
  /// It is sent what programs end of, for `by`: "client" or "session".
  void ask_to_end(const char* by) {
    if (ender_.empty()) ender_ = by;
  }
  /// Puts that into the record of its end, where it has died of that.
  void tell_wish(Json& record) const;
  /// It has ended so: the rest of its output is read, and then `wait` answers. Once.
  void conclude(End end);
  /// It never was: without output and without an end that anybody waits for.
  void abandon();
  [[nodiscard]] bool live() const { return state_ != State::kEnded; }
  [[nodiscard]] bool concluding() const { return concluding_; }
  [[nodiscard]] std::size_t memory() const;

 private:
  [[nodiscard]] Awaitable<void> finish(std::shared_ptr<ProcessImpl> self, End end);
  [[nodiscard]] Awaitable<void> terminate(std::shared_ptr<ProcessImpl> self);
  void settle(End end);
  [[nodiscard]] Awaitable<void> feed(std::shared_ptr<ProcessImpl> self);
  [[nodiscard]] Awaitable<void> tell_overflow(std::shared_ptr<ProcessImpl> self);
  [[nodiscard]] Awaitable<Outcome<Reply>> ask(std::string action, Json members);
  [[nodiscard]] std::size_t allowance(std::size_t bytes);
  void note_overflow();
  void pump(UniqueFd from, const std::shared_ptr<Journal>& journal);
  void take_stdin(UniqueFd to);
  [[nodiscard]] bool drained() const;

  std::weak_ptr<SessionImpl> session_;
  asio::any_io_executor executor_;
  std::shared_ptr<Clock> clock_;
  std::uint32_t id_;
  ProcessSpec spec_;
  Milliseconds grace_;
  State state_ = State::kStarting;
  int pid_ = 0;
  WallTime started_;
  std::optional<End> end_;
  Offsets end_offsets_;
  bool start_told_ = false;
  bool concluding_ = false, terminating_ = false, overflowed_ = false;
  std::string ender_;  ///< Who has had it sent what programs end of.
  std::uint64_t written_ = 0;
  std::shared_ptr<Journal> out_, err_;
  std::vector<std::shared_ptr<Pump>> pumps_;
  std::shared_ptr<StdinWriter> stdin_;
  Notifier changed_;
};

class SessionImpl final : public Session {
 public:
  SessionImpl(std::shared_ptr<Core> core, SessionSpec spec, Lease lease, const Place& place);

  [[nodiscard]] std::shared_ptr<SessionImpl> self() {
    return std::static_pointer_cast<SessionImpl>(shared_from_this());
  }

  [[nodiscard]] const std::string& id() const override { return spec_.id; }
  [[nodiscard]] State state() const override { return state_; }
  [[nodiscard]] const std::string& client() const override { return spec_.client; }
  [[nodiscard]] std::uint32_t uid() const override { return place_.uid; }
  [[nodiscard]] std::uint16_t port() const override { return place_.port; }
  [[nodiscard]] const std::string& workspace() const override { return place_.workspace; }
  [[nodiscard]] const std::string& policy() const override { return spec_.policy; }
  [[nodiscard]] const std::string& policy_digest() const override { return spec_.policy_digest; }
  [[nodiscard]] const Limits& limits() const override { return limits_; }
  [[nodiscard]] const std::vector<std::string>& settings() const override { return spec_.settings; }
  [[nodiscard]] const std::string& back_end() const override { return back_end_; }
  [[nodiscard]] const std::string& degraded() const override { return degraded_; }
  [[nodiscard]] int init_pid() const override { return init_pid_; }
  [[nodiscard]] WallTime created() const override { return created_wall_; }
  [[nodiscard]] std::optional<WallTime> expires() const override;
  [[nodiscard]] std::optional<Milliseconds> idle_after() const override { return spec_.idle; }
  [[nodiscard]] const std::map<std::string, std::string>& labels() const override {
    return spec_.labels;
  }
  void set_labels(std::map<std::string, std::string> labels) override;
  [[nodiscard]] const std::optional<End>& end_record() const override { return end_; }

  [[nodiscard]] Outcome<void> keep_alive(Milliseconds for_time) override;
  [[nodiscard]] Outcome<void> set_ttl(std::optional<Milliseconds> from_now) override;
  [[nodiscard]] Outcome<void> set_idle(std::optional<Milliseconds> idle) override;
  void touch() override;
  [[nodiscard]] Awaitable<bool> wait_ended(Milliseconds limit) override;

  [[nodiscard]] std::vector<std::shared_ptr<Process>> processes() const override;
  [[nodiscard]] std::shared_ptr<Process> process(std::uint32_t id) const override;
  [[nodiscard]] Awaitable<Outcome<std::shared_ptr<Process>>> start(ProcessSpec spec) override;
  [[nodiscard]] Awaitable<Outcome<ShellResult>> run_in_shell(ShellCommand command) override;

  [[nodiscard]] bool listens(std::uint16_t port) const override;
  [[nodiscard]] Awaitable<Outcome<void>> wait_listening(std::uint16_t port,
                                                        Milliseconds limit) override;
  [[nodiscard]] Awaitable<Outcome<UniqueFd>> connect(std::uint16_t port) override;

  [[nodiscard]] Awaitable<Outcome<Listing>> list(ListRequest request) override;
  [[nodiscard]] Awaitable<Outcome<OpenFile>> open(std::string path) override;
  [[nodiscard]] Awaitable<Outcome<Written>> write(WriteRequest request, UniqueFd source) override;
  [[nodiscard]] Awaitable<Outcome<void>> claim() override;
  [[nodiscard]] Awaitable<Outcome<void>> remove(std::string path, Recursive recursive,
                                                std::string if_match) override;
  [[nodiscard]] Awaitable<Outcome<void>> archive(std::string path, Way way, UniqueFd pipe) override;

  // For the core.
  /// Its whole life, in order: whatever it holds is given back here and nowhere else.
  [[nodiscard]] static Awaitable<void> live(std::shared_ptr<SessionImpl> self);
  /// Its life was broken off by an exception: what it holds is quarantined.
  void broke();
  void request_end(EndedBy by);
  void check_expiry(TimePoint now);
  [[nodiscard]] bool works_elsewhere() const { return spec_.workspace.has_value(); }
  [[nodiscard]] bool one_shot() const { return spec_.one_shot; }
  [[nodiscard]] bool failed() const { return brought_up_ && !*brought_up_; }
  [[nodiscard]] const std::optional<Outcome<void>>& brought_up() const { return brought_up_; }
  [[nodiscard]] Notifier& changed() { return changed_; }
  [[nodiscard]] Milliseconds grace() const { return grace_; }
  [[nodiscard]] TimePoint ended_at() const { return ended_at_; }
  [[nodiscard]] std::size_t memory() const;
  [[nodiscard]] std::size_t running_processes() const;
  void lose(const std::string& why);

  // For its processes.
  [[nodiscard]] Core& core() { return *core_; }
  [[nodiscard]] Awaitable<Outcome<Reply>> ask(Request request, Milliseconds limit);
  void process_ended(const ProcessImpl& process);
  void note(const std::string& type, const ProcessImpl* process, const std::string& cause,
            const std::string& detail);

 private:
  void attached(int change) override;

  [[nodiscard]] Awaitable<Outcome<void>> bring_up();
  [[nodiscard]] Awaitable<Outcome<void>> prepare();
  [[nodiscard]] Awaitable<Outcome<void>> adopt();
  [[nodiscard]] Awaitable<Outcome<void>> launch();
  [[nodiscard]] Awaitable<Outcome<void>> wait_started();
  [[nodiscard]] Awaitable<void> terminate();
  [[nodiscard]] Awaitable<void> ask_to_end();
  [[nodiscard]] Awaitable<void> kill();
  [[nodiscard]] Awaitable<void> monitor_gone();
  [[nodiscard]] Awaitable<void> clear_slot();
  void open_monitor(UniqueFd socket);
  void decide_end();
  void change_state(State state);

  void take_event(const std::string& name, const Json& event);
  void take_started(const Json& event);
  void take_over(const Json& event);
  [[nodiscard]] std::shared_ptr<ProcessImpl> process_of(const Json& event) const;
  [[nodiscard]] Outcome<void> usable() const;
  [[nodiscard]] Awaitable<Outcome<Reply>> file_work(Request request,
                                                    Milliseconds limit = kFileWorkLimit);
  [[nodiscard]] Outcome<std::optional<TimePoint>> deadline_after(Milliseconds from_now) const;
  void forget_old_processes();

  std::shared_ptr<Core> core_;
  SessionSpec spec_;
  Lease lease_;
  Place place_;
  State state_ = State::kStarting;
  std::string back_end_, degraded_ = "[]";
  Limits limits_;
  int init_pid_ = 0;
  Milliseconds grace_;
  TimePoint created_, last_use_, ended_at_;
  WallTime created_wall_;
  std::optional<TimePoint> expires_;
  int attachments_ = 0;

  std::optional<Outcome<void>> brought_up_;
  std::optional<EndedBy> end_requested_;
  bool started_ = false, workspace_made_ = false, launched_ = false, unsure_ = false;
  std::optional<Json> over_;
  std::string why_lost_;
  std::optional<End> end_;

  std::shared_ptr<Channel> monitor_;
  UniqueFd monitor_pidfd_;
  std::uint32_t last_process_ = 0;
  std::map<std::uint32_t, std::shared_ptr<ProcessImpl>> processes_;
  std::deque<std::uint32_t> ended_processes_;
  Shell shell_;
  Notifier changed_;
};

}  // namespace belljar::supervisor
