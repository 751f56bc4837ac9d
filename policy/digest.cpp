#include "policy/digest.hpp"

#include <sha256.h>
#include <sys/types.h>

#include <array>
#include <cstdint>

namespace belljar::policy {

std::string sha256_digest(std::string_view bytes) {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> digits{};
  SHA256Data(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), digits.data());
  return std::string("sha256:") + digits.data();
}

}  // namespace belljar::policy
