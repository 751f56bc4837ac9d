#include "launcher/service/session_message.hpp"

#include <sys/un.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "launcher/service/closed_object.hpp"

namespace belljar::service {
namespace {

constexpr std::uint64_t kHighestProcess = 0x7fffffff;
constexpr std::uint64_t kLongestWallTime = std::uint64_t{1} << 40;

std::uint32_t process_of(ClosedObject& object, std::uint64_t least = 0) {
  return static_cast<std::uint32_t>(object.number("process", least, kHighestProcess));
}

SessionDemand read_exec(ClosedObject& object) {
  Exec exec;
  exec.process = process_of(object, 1);
  exec.argv = object.texts("argv", true).value_or(std::vector<std::string>{});
  if (exec.argv.empty() || exec.argv.front().empty()) object.wrong("argv", "expected a command");
  exec.environment = object.environment();
  exec.directory = object.directory();
  if (object.has("wall_time_ms"))
    exec.wall_time_ms = object.number("wall_time_ms", 1, kLongestWallTime);
  exec.terminal = object.terminal("terminal");
  return exec;
}

SessionDemand read_signal(ClosedObject& object) {
  Signal signal;
  signal.process = process_of(object);
  signal.number = static_cast<int>(object.number("signal", 1, NSIG - 1));
  const std::string to = object.text("to");
  signal.to = to == "leader" ? Signal::To::kLeader
              : to == "tree" ? Signal::To::kTree
                             : Signal::To::kGroup;
  if (to != "leader" && to != "group" && to != "tree")
    object.wrong("to", "expected \"leader\", \"group\" or \"tree\"");
  return signal;
}

SessionDemand read_end(ClosedObject& object) {
  End end;
  end.process = process_of(object);
  const std::string cause = object.text("cause");
  end.output = cause == "output";
  if (cause != "output" && cause != "killed")
    object.wrong("cause", "expected \"killed\" or \"output\"");
  return end;
}

SessionDemand read_resize(ClosedObject& object) {
  Resize resize;
  resize.process = process_of(object);
  resize.size.columns = static_cast<std::uint16_t>(object.number("columns", 1, 65535));
  resize.size.rows = static_cast<std::uint16_t>(object.number("rows", 1, 65535));
  return resize;
}

SessionDemand read_connect(ClosedObject& object) {
  Connect connect;
  const bool to_path = object.has("unix");
  if (to_path)
    connect.path = object.text("unix");
  else
    connect.port = static_cast<std::uint16_t>(object.number("port", 1, 65535));
  const bool good = connect.path.starts_with('/') &&
                    connect.path.size() < sizeof(sockaddr_un::sun_path) &&
                    connect.path.find('\0') == std::string::npos;
  if (to_path && !good) object.wrong("unix", "expected an absolute path of at most 107 bytes");
  return connect;
}

SessionDemand read_kill(ClosedObject& object) {
  constexpr std::array<const char*, 8> kBy = {
      "client", "operator", "drain", "daemon", "expired", "idle", "owner_gone", "workspace_gone"};
  const auto by = std::find(kBy.begin(), kBy.end(), object.text("by"));
  if (by != kBy.end()) return Kill{*by};
  object.wrong("by",
               "expected client, operator, drain, daemon, expired, idle, owner_gone or "
               "workspace_gone");
  return Kill{};
}

}  // namespace

tl::expected<SessionRequest, Unread> read_session_request(std::string_view text) {
  constexpr DemandKind<SessionDemand> kKinds[] = {
      {"exec", read_exec},     {"signal", read_signal},   {"end", read_end},
      {"resize", read_resize}, {"connect", read_connect}, {"kill", read_kill}};
  return read_demand<SessionRequest, SessionDemand>(text, kKinds);
}

std::size_t descriptors_of(const SessionDemand& demand) {
  const auto* exec = std::get_if<Exec>(&demand);
  return exec != nullptr && !exec->terminal ? 3 : 0;
}

}  // namespace belljar::service
