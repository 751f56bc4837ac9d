#include "api/ctl/attach.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "api/ctl/commands.hpp"
#include "api/ctl/ending.hpp"
#include "policy/base/result.hpp"

namespace belljar::ctl {
namespace {

/// The first byte of each message.
enum Channel : unsigned char {
  kInput = 0,
  kOutput = 1,
  kErrors = 2,
  kRecord = 3,
  kResize = 4,
  kControl = 5,
  kClose = 255,
};

constexpr std::size_t kMostUnsent = std::size_t{256} << 10;
constexpr std::size_t kKeys = std::size_t{16} << 10;

std::string message(Channel channel, std::string_view payload) {
  return static_cast<char>(channel) + std::string(payload);
}

class AttachedProcess {
 public:
  AttachedProcess(const Client& client, const Attaching& wanted, const Signals& signals)
      : client_(client),
        wanted_(wanted),
        signals_(signals),
        keys_(wanted.keys),
        at_(wanted.from),
        forwarder_(client, wanted.name, signals),
        reads_(wanted.input),
        raw_wanted_(wanted.input && wanted.terminal && isatty(STDIN_FILENO) == 1) {}

  Outcome<int> stay() {
    Patience patience;
    for (bool reached = false, told = false;;) {
      const Offsets before = at_;
      Done stayed = connect_and_stay(reached);
      if (over_ || !stayed) terminal_.leave();
      if (record_) return end_as(*record_);
      if (over_) return status_;
      if (!stayed && !reached) return tl::unexpected(explained(stayed.error(), wanted_.name));
      if (stayed) stayed = failed(FailureKind::kBroken, socket_reason_);
      if (at_.out != before.out || at_.err != before.err) patience.settle();
      if (!patience.again(stayed.error()))
        return tl::unexpected(explained(stayed.error(), wanted_.name));
      if (std::exchange(told, true)) continue;
      terminal_.leave();
      say("the connection broke (" + stayed.error().what + "); going on from where it was");
    }
  }

 private:
  /// One connection's worth. A connection that ended by itself is no failure here.
  Done connect_and_stay(bool& reached) {
    std::string target = wanted_.name.path() + "/attach?stdout=" + std::to_string(at_.out) +
                         "&stderr=" + std::to_string(at_.err);
    target += wanted_.input ? "&writer=true" : "&writer=false";
    // Our own connection, which broke, may still seem to be there.
    if (wanted_.takeover || (reached && wanted_.input)) target += "&takeover=true";
    socket_ = BELLJAR_TRY(WebSocket::connect(client_.address(), target, "belljar.attach.v1"));
    reached = true;
    greeted_ = asked_ = false;
    if (raw_wanted_) BELLJAR_CHECK(terminal_.enter(STDIN_FILENO));
    send_size();
    while (!over_) {
      socket_->turn();
      while (const auto came = socket_->next())
        if (!take(*came)) break;
      if (record_ || over_) break;
      if (socket_->over()) {
        socket_reason_ = socket_->reason();
        return {};
      }
      BELLJAR_CHECK(wait());
    }
    socket_->close();
    return {};
  }

  Done wait() {
    const bool room = input_.size() < kMostUnsent;
    const bool reads = reads_ && greeted_ && room && !input_ended_;
    std::array<pollfd, 3> places = {{{socket_->descriptor(), socket_->events(), 0},
                                     {signals_.descriptor(), POLLIN, 0},
                                     {reads ? STDIN_FILENO : -1, POLLIN, 0}}};
    // The socket keeps time for its own pings; ours ask what of the input has been taken.
    const int turn_ms = input_.empty() ? 1000 : 50;
    if (poll(places.data(), places.size(), turn_ms) < 0 && errno != EINTR)
      return call_failed(errno, "wait for the daemon and the terminal");
    if (!input_.empty()) ask_for_taken();
    if (places[1].revents != 0)
      while (const auto number = signals_.next()) take_signal(*number);
    if (places[2].revents != 0 && !over_) return read_input();
    return {};
  }

  // --- from there

  /// False: nothing more is wanted.
  bool take(std::string_view came) {
    if (came.empty()) return true;
    const auto channel = static_cast<unsigned char>(came[0]);
    came.remove_prefix(1);
    if (channel == kOutput) return write_out(STDOUT_FILENO, came, at_.out);
    if (channel == kErrors) return write_out(STDERR_FILENO, came, at_.err);
    if (channel == kControl) take_control(Json::parse(came, nullptr, false));
    if (channel != kRecord) return true;
    record_ = Json::parse(came, nullptr, false);
    if (!record_->is_object()) record_ = Json::object();
    return false;
  }

  bool write_out(int descriptor, std::string_view bytes, std::uint64_t& at) {
    at += bytes.size();
    const int error = write_all(descriptor, bytes);
    if (error == 0) return true;
    leave(128 + SIGPIPE);
    if (error != EPIPE) say(std::string("write what the command has written: ") + strerror(error));
    if (wanted_.ours) (void)end_process(client_, wanted_.name);
    return false;
  }

  void take_control(const Json& control) {
    const std::string type = text_of(control, "type");
    if (type == "hello") return take_hello(control);
    if (type == "pong") {
      asked_ = false;
      return forget_input(member_of(control, "stdin"));
    }
    if (type == "gap") {
      const Stream stream = text_of(control, "stream") == "stderr" ? Stream::kErr : Stream::kOut;
      std::uint64_t& at = stream == Stream::kErr ? at_.err : at_.out;
      at = number_of(control, "to");
      return tell([&] { say_gap(stream, number_of(control, "from"), at); });
    }
    if (type == "writer") {
      writes_ = member_of(control, "writer") == Json(true);
      if (!writes_) tell([] { say("another has taken over: what is typed here has no effect"); });
    }
    // Of input that came when the command had closed its own, or had ended: its record follows.
    if (type == "error" && text_of(control, "code") != "ended")
      tell([&] { say(text_of(control, "detail")); });
  }

  void take_hello(const Json& hello) {
    const Json& offsets = member_of(hello, "offsets");
    if (offsets.is_object()) at_ = {number_of(offsets, "stdout"), number_of(offsets, "stderr")};
    const Json& taken = member_of(hello, "stdin");
    writes_ = wanted_.input && taken.is_number_unsigned();
    if (wanted_.input && !writes_ && reads_ && !raw_wanted_) {
      reads_ = false;
      say("the command's standard input is closed");
    }
    if (!input_from_ && taken.is_number_unsigned()) input_from_ = taken.get<std::uint64_t>();
    forget_input(taken);
    greeted_ = true;
    if (writes_) send_input(input_);
    if (writes_ && input_ended_) send_end_of_input();
  }

  /// What it has need not be kept for another connection.
  void forget_input(const Json& taken) {
    if (!taken.is_number_unsigned() || !input_from_) return;
    const auto upto = taken.get<std::uint64_t>();
    if (upto <= *input_from_) return;
    input_.erase(0, static_cast<std::size_t>(upto - *input_from_));
    input_from_ = upto;
  }

  /// Says something where the terminal is raw.
  template <class Saying>
  void tell(const Saying& saying) {
    terminal_.leave();
    saying();
    if (raw_wanted_ && !over_) (void)terminal_.enter(STDIN_FILENO);
  }

  // --- from here

  void ask_for_taken() {
    const auto now = std::chrono::steady_clock::now();
    if (!greeted_ || asked_ || now - last_asked_ < std::chrono::milliseconds(50)) return;
    asked_ = true;
    last_asked_ = now;
    socket_->send(message(kControl, R"({"type":"ping"})"));
  }

  void send_input(std::string_view bytes) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kKeys)))
      socket_->send(message(kInput, bytes.substr(0, kKeys)));
  }

  Done read_input() {
    std::array<char, kKeys> keys{};
    const ssize_t got = read(STDIN_FILENO, keys.data(), keys.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return {};
    if (got <= 0) {
      input_ended_ = true;
      if (writes_) send_end_of_input();
      return {};
    }
    const std::string_view typed(keys.data(), static_cast<std::size_t>(got));
    const std::string passed = raw_wanted_ ? keys_.pass(typed) : std::string(typed);
    if (writes_ && !passed.empty()) {
      input_ += passed;
      send_input(passed);
    }
    if (!keys_.detached()) return {};
    leave(0);
    say("detached; the command runs on: belljarctl attach " + wanted_.name.session + ' ' +
        wanted_.name.process);
    return {};
  }

  void send_end_of_input() {
    // A terminal that is gone is no end of input: the command's own is still there.
    if (!wanted_.terminal) socket_->send(message(kClose, std::string(1, kInput)));
  }

  void send_size() {
    if (!wanted_.terminal || !wanted_.input) return;
    const auto size = terminal_size(STDOUT_FILENO);
    if (!size) return;
    const Json body = {{"cols", size->columns}, {"rows", size->rows}};
    socket_->send(message(kResize, dumped(body)));
  }

  void take_signal(int number) {
    if (number == SIGWINCH) return send_size();
    if (number == SIGCONT) return;
    if (number == SIGTSTP) return stop();
    if (wanted_.ours) return forwarder_.forward(number);
    leave(128 + number);
    say("the command runs on: belljarctl attach " + wanted_.name.session + ' ' +
        wanted_.name.process);
  }

  /// As a program in a shell stops, and goes on.
  void stop() {
    terminal_.leave();
    raise(SIGSTOP);
    if (raw_wanted_) (void)terminal_.enter(STDIN_FILENO);
    send_size();
  }

  void leave(int status) {
    over_ = true;
    status_ = status;
    terminal_.leave();
  }

  const Client& client_;
  const Attaching& wanted_;
  const Signals& signals_;
  DetachKeys keys_;
  Offsets at_;
  SignalForwarder forwarder_;
  std::unique_ptr<WebSocket> socket_;
  std::string socket_reason_;
  RawTerminal terminal_;
  std::optional<Json> record_;
  bool reads_, raw_wanted_;
  /// Read here, and not known to have been taken there: for another connection.
  std::string input_;
  std::optional<std::uint64_t> input_from_;  ///< Its first byte's place in all of stdin.
  bool greeted_ = false, writes_ = false, asked_ = false;
  std::chrono::steady_clock::time_point last_asked_;
  bool input_ended_ = false, over_ = false;
  int status_ = 0;
};

/// Takes this terminal's size over, where it has one to take it.
Outcome<bool> has_terminal(const Client& client, const ProcessName& name) {
  const Size size = terminal_size(STDOUT_FILENO).value_or(Size{});
  const auto resized =
      client.post(name.path() + "/resize", {{"cols", size.columns}, {"rows", size.rows}});
  if (resized) return true;
  const bool none = resized.error().kind == FailureKind::kProblem && resized.error().status < 500;
  if (none) return false;
  return tl::unexpected(resized.error());
}

}  // namespace

Outcome<int> attach_to(const Client& client, const Attaching& wanted, const Signals& signals) {
  return AttachedProcess(client, wanted, signals).stay();
}

Outcome<int> attach(const Client& client, const AttachOptions& asked) {
  Attaching attaching;
  attaching.name = {asked.session, asked.process};
  attaching.keys = BELLJAR_TRY(DetachKeys::parse(asked.detach_keys));
  const Outcome<Json> process = client.get(attaching.name.path());
  if (!process) return tl::unexpected(explained(process.error(), attaching.name));
  attaching.input = !asked.read_only;
  if (attaching.input && isatty(STDIN_FILENO) == 1)
    attaching.terminal = BELLJAR_TRY(has_terminal(client, attaching.name));
  attaching.takeover = asked.takeover;
  if (!asked.from_start) {
    const Json& offsets = member_of(*process, "offsets");
    attaching.from = {number_of(offsets, "stdout"), number_of(offsets, "stderr")};
  }
  signal(SIGPIPE, SIG_IGN);
  const Signals signals = BELLJAR_TRY(Signals::take(Signals::Which::kTerminal));
  return attach_to(client, attaching, signals);
}

}  // namespace belljar::ctl
