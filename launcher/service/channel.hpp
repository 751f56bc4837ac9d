// Messages with descriptors over a SOCK_SEQPACKET socket.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

struct Received {
  enum class Kind {
    kNothing,  ///< Not yet.
    kMessage,
    kEnd,       ///< The other end is closed, or the socket is broken.
    kTooLarge,  ///< Longer than `room`; what came of it is dropped.
  };
  Kind kind = Kind::kNothing;
  std::string text;
  std::vector<sys::UniqueFd> descriptors;
  bool lost_descriptors = false;  ///< There was no number left for some (EMFILE).
};

/// Takes one message of at most `room` bytes. Waits only where the socket does. Descriptors are
/// close-on-exec; there may be as many as the kernel passes on.
[[nodiscard]] Received receive(int socket, std::size_t room);

/// Sends one message without waiting: 0, or the errno; EAGAIN when there is no room.
[[nodiscard]] int send_message(int socket, std::string_view text, std::span<const int> descriptors);

}  // namespace belljar::service
