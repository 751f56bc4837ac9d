// What comes over a session socket (docs/launch-service.md), read into values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/service/message.hpp"
#include "launcher/sys/terminal.hpp"

namespace belljar::service {

struct Exec {
  std::uint32_t process = 0;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  std::string directory;
  std::optional<std::uint64_t> wall_time_ms;
  std::optional<sys::TerminalSize> terminal;
};
struct Signal {
  enum class To { kLeader, kGroup, kTree };
  std::uint32_t process = 0;
  int number = 0;
  To to = To::kGroup;
};
/// Of one process and all that descends from it.
struct End {
  std::uint32_t process = 0;
  bool output = false;  ///< For its output; otherwise its client wants it.
};
struct Resize {
  std::uint32_t process = 0;
  sys::TerminalSize size;
};
struct Connect {
  std::uint16_t port = 0;  ///< Of 127.0.0.1 inside; 0: the socket at `path`.
  std::string path;
};
struct Kill {
  const char* by = "";  ///< A word of the protocol, which outlives all.
};

using SessionDemand = std::variant<Exec, Signal, End, Resize, Connect, Kill>;

struct SessionRequest {
  std::uint64_t id = 0;
  SessionDemand demand;
};

[[nodiscard]] tl::expected<SessionRequest, Unread> read_session_request(std::string_view text);

/// How many descriptors come with it.
[[nodiscard]] std::size_t descriptors_of(const SessionDemand& demand);

}  // namespace belljar::service
