// What the guard of a private network tells belljar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policy/base/result.hpp"

namespace belljar::network {

/// What of a network was tried and refused.
struct Refusal {
  std::string to;       ///< "10.0.0.0/8"
  std::string because;  ///< The rule's reason.
  std::uint64_t packets = 0;
};

struct Word {
  enum class Kind { kUp, kFailed, kOver };
  Kind kind = Kind::kUp;
  Error error;                    ///< kFailed: before it was up, or since.
  std::vector<Refusal> refusals;  ///< kOver.
};

/// One message on a SOCK_SEQPACKET socket. Nobody there: nobody needs to know.
void tell(int socket, const Word& word);

/// Waits for one; nothing at the end of file, or for what is none.
[[nodiscard]] std::optional<Word> hear(int socket);

}  // namespace belljar::network
