#include "supervisor/slots.hpp"

#include <iterator>

namespace belljar::supervisor {

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    quarantine();
    slots_ = std::exchange(other.slots_, nullptr);
    slot_ = other.slot_;
  }
  return *this;
}

void Lease::give_back() {
  if (Slots* slots = std::exchange(slots_, nullptr)) {
    slots->leased_.erase(slot_.index);
    slots->retried_.erase(slot_.index);
    slots->free_.insert(slot_.index);
  }
}

void Lease::quarantine() {
  if (Slots* slots = std::exchange(slots_, nullptr)) {
    slots->leased_.erase(slot_.index);
    slots->retried_.erase(slot_.index);
    slots->quarantined_.insert(slot_.index);
  }
}

Slots::Slots(Range range) : range_(range) {
  for (std::uint32_t index = 0; index < range.count; ++index) free_.insert(free_.end(), index);
}

Slot Slots::at(std::uint32_t index) const {
  Slot slot;
  slot.index = index;
  slot.uid = range_.same_uid ? range_.uid_base : range_.uid_base + index;
  slot.port = static_cast<std::uint16_t>(range_.port_base + index);
  return slot;
}

std::optional<Lease> Slots::lease() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t index = *free_.begin();
  free_.erase(free_.begin());
  leased_.insert(index);
  return Lease(this, at(index));
}

std::optional<Lease> Slots::retry(std::uint32_t index) {
  if (quarantined_.erase(index) == 0) return std::nullopt;
  retried_.insert(index);
  return Lease(this, at(index));
}

std::vector<std::uint32_t> Slots::quarantined() const {
  return {quarantined_.begin(), quarantined_.end()};
}

}  // namespace belljar::supervisor
