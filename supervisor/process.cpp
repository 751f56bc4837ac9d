#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "policy/base/tighter.hpp"
#include "supervisor/session_impl.hpp"

namespace belljar::supervisor {
namespace {

/// How long the end of a process waits for the end of its output: a program that it left behind may
/// hold the pipe for ever.
constexpr Milliseconds kTrailingOutput{250};
/// Between the kill of a process and the answer that it could not be waited for.
constexpr Milliseconds kAfterKill{1000};

const char* target_name(Process::Target target) {
  switch (target) {
    case Process::Target::kLeader:
      return "leader";
    case Process::Target::kGroup:
      return "group";
    case Process::Target::kTree:
      return "tree";
  }
  return "leader";
}

}  // namespace

std::optional<int> signal_number(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (name == (known ? std::string(known) : std::to_string(number))) return number;
  }
  return std::nullopt;
}

End end_of(const Json& record, WallTime time) {
  const auto cause = record.find("cause");
  if (!record.is_object() || cause == record.end() || !cause->is_string())
    return made_up_end("lost", {}, time);
  End end;
  end.cause = cause->get<std::string>();
  if (const auto code = record.find("exit_code"); code != record.end() && code->is_number_integer())
    end.exit_code = code->get<int>();
  if (const auto signal = record.find("signal"); signal != record.end())
    end.signal = signal->is_number_integer() ? signal->get<int>()
                 : signal->is_string()       ? signal_number(signal->get<std::string>())
                                             : std::nullopt;
  end.record = dumped(record);
  end.time = time;
  return end;
}

End made_up_end(const std::string& cause, const std::string& by, WallTime time) {
  Json record;
  record["cause"] = cause;
  if (!by.empty()) record["by"] = by;
  End end;
  end.cause = cause;
  end.record = record.dump();
  end.time = time;
  return end;
}

ProcessImpl::ProcessImpl(const std::shared_ptr<SessionImpl>& session, std::uint32_t id,
                         ProcessSpec spec)
    : session_(session),
      executor_(session->core().executor),
      clock_(session->core().clock),
      id_(id),
      spec_(std::move(spec)),
      grace_(session->grace()),
      started_(clock_->wall()),
      out_(std::make_shared<Journal>(executor_, clock_, spec_.journal)),
      err_(spec_.merge_output || spec_.terminal
               ? out_
               : std::make_shared<Journal>(executor_, clock_, spec_.journal)),
      changed_(executor_, clock_) {}

// Streams.

Outcome<std::vector<UniqueFd>> ProcessImpl::make_streams() {
  std::vector<UniqueFd> inside;
  if (spec_.stdin_file) {
    Outcome<UniqueFd> file = duplicate(*spec_.stdin_file);
    if (!file) return tl::unexpected<Failure>(file.error());
    inside.push_back(std::move(*file));
  } else if (spec_.stdin_mode == ProcessSpec::Stdin::kNone && spec_.stdin_text.empty()) {
    inside.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!inside.back().valid()) return sys_refusal(errno, "open /dev/null");
  } else {
    Outcome<Pipe> in = make_pipe();
    if (!in) return tl::unexpected<Failure>(in.error());
    inside.push_back(std::move(in->read_end));
    take_stdin(std::move(in->write_end));
  }
  Outcome<Pipe> out = make_pipe();
  if (!out) return tl::unexpected<Failure>(out.error());
  inside.push_back(std::move(out->write_end));
  pump(std::move(out->read_end), out_);
  Outcome<Pipe> err;
  if (err_ == out_) {
    Outcome<UniqueFd> same = duplicate(inside.back());
    if (!same) return tl::unexpected<Failure>(same.error());
    inside.push_back(std::move(*same));
    return inside;
  }
  err = make_pipe();
  if (!err) return tl::unexpected<Failure>(err.error());
  inside.push_back(std::move(err->write_end));
  pump(std::move(err->read_end), err_);
  return inside;
}

Outcome<void> ProcessImpl::take_terminal(UniqueFd master) {
  if (!live()) return {};
  if (concluding_) {  // What it has written is still in there.
    pump(std::move(master), out_);
    return {};
  }
  Outcome<UniqueFd> keys = duplicate(master);
  if (!keys) return tl::unexpected<Failure>(keys.error());
  take_stdin(std::move(*keys));
  pump(std::move(master), out_);
  return {};
}

void ProcessImpl::pump(UniqueFd from, const std::shared_ptr<Journal>& journal) {
  const std::weak_ptr<ProcessImpl> weak = std::static_pointer_cast<ProcessImpl>(shared_from_this());
  const auto allowed = [weak](std::size_t bytes) {
    const std::shared_ptr<ProcessImpl> process = weak.lock();
    return process ? process->allowance(bytes) : bytes;
  };
  pumps_.push_back(std::make_shared<Pump>(executor_, std::move(from), journal, allowed));
  pumps_.back()->start([weak] {
    if (const std::shared_ptr<ProcessImpl> process = weak.lock()) process->changed_.notify();
  });
}

void ProcessImpl::take_stdin(UniqueFd to) {
  stdin_ = std::make_shared<StdinWriter>(executor_, std::move(to));
  if (spec_.stdin_text.empty()) return;
  asio::co_spawn(executor_, feed(std::static_pointer_cast<ProcessImpl>(shared_from_this())),
                 asio::detached);
}

Awaitable<void> ProcessImpl::feed(std::shared_ptr<ProcessImpl> self) {
  const std::shared_ptr<StdinWriter> to = self->stdin_;
  std::string text = std::move(self->spec_.stdin_text);
  // Whether the program wants to read all of it is its own affair.
  (void)co_await to->write(std::move(text), std::nullopt);
  if (self->spec_.stdin_mode == ProcessSpec::Stdin::kNone) to->drop();
}

std::size_t ProcessImpl::allowance(std::size_t bytes) {
  const std::uint64_t before = written_;
  written_ += bytes;
  if (!spec_.output || written_ <= *spec_.output) return bytes;
  note_overflow();
  return before < *spec_.output ? static_cast<std::size_t>(*spec_.output - before) : 0;
}

void ProcessImpl::limit_output(std::optional<std::uint64_t> most) {
  spec_.output = tighter(spec_.output, most);
  if (spec_.output && written_ > *spec_.output) note_overflow();
}

void ProcessImpl::note_overflow() {
  if (std::exchange(overflowed_, true)) return;
  asio::co_spawn(executor_,
                 tell_overflow(std::static_pointer_cast<ProcessImpl>(shared_from_this())),
                 asio::detached);
}

Awaitable<void> ProcessImpl::tell_overflow(std::shared_ptr<ProcessImpl> self) {
  Json members;
  members["cause"] = "output";
  (void)co_await self->ask("end", std::move(members));
}

bool ProcessImpl::drained() const {
  // A terminal comes with the answer to exec, and that may be taken after the news of the end.
  if (spec_.terminal && pumps_.empty()) return false;
  return std::ranges::all_of(pumps_, [](const auto& pump) { return pump->done(); });
}

std::size_t ProcessImpl::memory() const {
  return sizeof(ProcessImpl) + out_->memory() + (err_ == out_ ? 0 : err_->memory());
}

// Its states.

void ProcessImpl::running(int pid) {
  pid_ = pid;
  if (state_ == State::kStarting) state_ = State::kRunning;
}

void ProcessImpl::stopped(bool stopped) {
  if (state_ == State::kRunning || state_ == State::kStopped)
    state_ = stopped ? State::kStopped : State::kRunning;
}

void ProcessImpl::tell_wish(Json& record) const {
  if (ender_.empty() || !record.is_object() || text_of(record, "cause") != "signaled") return;
  const End end = end_of(record, {});
  if (end.signal != SIGTERM && end.signal != SIGKILL) return;
  record["cause"] = "killed";
  record["by"] = ender_;
}

void ProcessImpl::conclude(End end) {
  if (std::exchange(concluding_, true)) return;
  if (stdin_) stdin_->drop();
  const auto self = std::static_pointer_cast<ProcessImpl>(shared_from_this());
  asio::co_spawn(executor_, finish(self, std::move(end)), asio::detached);
}

Awaitable<void> ProcessImpl::finish(std::shared_ptr<ProcessImpl> self, End end) {
  if (self->spec_.keeps_output) {
    for (const std::shared_ptr<Pump>& pump : self->pumps_) pump->take_now();
    self->spec_.stdin_file.reset();
    self->settle(std::move(end));
    co_return;
  }
  const auto drained = [&] { return self->drained(); };
  const TimePoint deadline = self->clock_->now() + kTrailingOutput;
  (void)co_await wait_for(self->changed_, drained, deadline);
  for (const std::shared_ptr<Pump>& pump : self->pumps_) pump->stop();
  self->pumps_.clear();
  self->out_->finish();
  self->err_->finish();
  self->settle(std::move(end));
}

void ProcessImpl::settle(End end) {
  end_offsets_ = {out_->size(), err_->size()};
  end_ = std::move(end);
  state_ = State::kEnded;
  changed_.notify();
  if (const std::shared_ptr<SessionImpl> session = session_.lock()) session->process_ended(*this);
}

void ProcessImpl::abandon() {
  concluding_ = true;
  state_ = State::kEnded;
  if (stdin_) stdin_->drop();
  for (const std::shared_ptr<Pump>& pump : pumps_) pump->stop();
  pumps_.clear();
  out_->finish();
  err_->finish();
  changed_.notify();
}

// What may be asked of it.

Awaitable<bool> ProcessImpl::wait(Milliseconds limit) {
  const std::shared_ptr<Process> self = shared_from_this();
  const auto ended = [this] { return state_ == State::kEnded; };
  const TimePoint deadline = clock_->now() + limit;
  co_return co_await wait_for(changed_, ended, deadline);
}

Awaitable<Outcome<Reply>> ProcessImpl::ask(std::string action, Json members) {
  const std::shared_ptr<SessionImpl> session = session_.lock();
  if (!session || concluding_ || !live())
    co_return refuse(Code::kEnded, "process " + std::to_string(id_) + " has ended");
  members["process"] = id_;
  Request request(action, std::move(members));
  co_return co_await session->ask(std::move(request), kAskLimit);
}

Awaitable<Outcome<void>> ProcessImpl::signal(int number, Target to) {
  const std::shared_ptr<Process> self = shared_from_this();
  if (number < 1 || number >= NSIG)
    co_return refuse(Code::kInvalid, "there is no signal " + std::to_string(number));
  Json members;
  members["signal"] = number;
  members["to"] = target_name(to);
  const Outcome<Reply> reply = co_await ask("signal", std::move(members));
  BELLJAR_CO_TRY(reply);
  const auto gone = reply->ok.find("gone");
  if (gone != reply->ok.end() && gone->is_boolean() && gone->get<bool>())
    co_return refuse(Code::kEnded, "process " + std::to_string(id_) + " has ended");
  co_return Outcome<void>();
}

Awaitable<Outcome<void>> ProcessImpl::resize(TerminalSize size) {
  const std::shared_ptr<Process> self = shared_from_this();
  if (!spec_.terminal)
    co_return refuse(Code::kConflict, "process " + std::to_string(id_) + " has no terminal");
  Json members;
  members["columns"] = size.columns;
  members["rows"] = size.rows;
  const Outcome<Reply> reply = co_await ask("resize", std::move(members));
  BELLJAR_CO_TRY(reply);
  co_return Outcome<void>();
}

Awaitable<Outcome<bool>> ProcessImpl::end() {
  const auto self = std::static_pointer_cast<ProcessImpl>(shared_from_this());
  const std::shared_ptr<SessionImpl> session = session_.lock();
  if (!live() && spec_.keeps_output && !drained() && session) {
    // Of a command that has ended: what it has left behind.
    Json members;
    members["process"] = id_;
    members["cause"] = "killed";
    Request request("end", std::move(members));
    (void)co_await session->ask(std::move(request), kAskLimit);
  }
  if (!live()) co_return true;
  if (!session) co_return refuse(Code::kEnded, "the session has ended");
  if (id_ == 0) {
    session->request_end(EndedBy::kClient);
  } else if (!std::exchange(terminating_, true)) {
    // It goes on to its end, whether or not the caller waits.
    asio::co_spawn(executor_, terminate(self), asio::detached);
  }
  co_return co_await wait(grace_ + kAfterKill);
}

Awaitable<void> ProcessImpl::terminate(std::shared_ptr<ProcessImpl> self) {
  self->ask_to_end("client");
  (void)co_await self->signal(SIGTERM, Target::kGroup);
  // A stopped program sees TERM only when it goes on.
  (void)co_await self->signal(SIGCONT, Target::kGroup);
  if (!co_await self->wait(self->grace_)) {
    Json members;
    members["cause"] = "killed";
    (void)co_await self->ask("end", std::move(members));
  }
  self->terminating_ = false;
}

Awaitable<Outcome<std::uint64_t>> ProcessImpl::write_stdin(std::string bytes,
                                                           std::optional<std::uint64_t> offset) {
  const std::shared_ptr<Process> self = shared_from_this();
  const std::shared_ptr<StdinWriter> to = stdin_;
  if (!to)
    co_return refuse(Code::kConflict, "process " + std::to_string(id_) + " has no open stdin",
                     "start it with an open stdin");
  if (const std::shared_ptr<SessionImpl> session = session_.lock()) session->touch();
  co_return co_await to->write(std::move(bytes), offset);
}

void ProcessImpl::stop_writing() {
  if (stdin_) stdin_->stop_waiting();
}

Outcome<void> ProcessImpl::close_stdin() {
  if (!stdin_)
    return refuse(Code::kConflict, "process " + std::to_string(id_) + " has no open stdin");
  if (!spec_.terminal) return stdin_->close();
  return refuse(Code::kConflict, "a terminal's stdin is closed by its end-of-file key",
                "write the byte 4 (Ctrl-D) at the beginning of a line");
}

}  // namespace belljar::supervisor
