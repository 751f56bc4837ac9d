#include "launcher/sys/landlock.hpp"

#include "launcher/sys/raw.hpp"

namespace belljar::sys {

int landlock_abi() noexcept {
  constexpr unsigned kVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION
  return static_cast<int>(raw(kLandlockCreateRuleset, nullptr, 0, kVersion));
}

}  // namespace belljar::sys
