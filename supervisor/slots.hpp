// Slots: the uids and ports of sessions, each leased to one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace belljar::supervisor {

struct Slot {
  std::uint32_t index = 0;
  std::uint32_t uid = 0;
  std::uint16_t port = 0;
};

class Slots;

/// The right to a slot. Whoever destroys one without saying what became of the uid quarantines it:
/// on no path does a slot come back by accident.
class [[nodiscard]] Lease {
 public:
  Lease() = default;
  Lease(Slots* slots, Slot slot) : slots_(slots), slot_(slot) {}
  Lease(Lease&& other) noexcept
      : slots_(std::exchange(other.slots_, nullptr)), slot_(other.slot_) {}
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { quarantine(); }

  [[nodiscard]] bool held() const { return slots_ != nullptr; }
  [[nodiscard]] const Slot& slot() const { return slot_; }
  /// Nothing of its uid is left: the next session may have it.
  void give_back();
  /// Something may be left: nobody gets it until `give_back` of a retry.
  void quarantine();

 private:
  Slots* slots_ = nullptr;
  Slot slot_;
};

/// The pool. Lowest free first. Must outlive its leases.
class Slots {
 public:
  /// `count` uids from `uid_base` and ports from `port_base`; with `same_uid` all have
  /// `uid_base`'s, as those of a daemon without privileges do.
  struct Range {
    std::uint32_t uid_base = 0;
    std::uint32_t count = 0;
    std::uint32_t port_base = 0;
    bool same_uid = false;
  };
  explicit Slots(Range range);
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  /// Nothing when none is free.
  [[nodiscard]] std::optional<Lease> lease();
  /// A quarantined slot for a retry; the Lease says how that went.
  [[nodiscard]] std::optional<Lease> retry(std::uint32_t index);
  /// Those that no retry has now.
  [[nodiscard]] std::vector<std::uint32_t> quarantined() const;

  [[nodiscard]] std::size_t free_count() const { return free_.size(); }
  [[nodiscard]] std::size_t quarantined_count() const {
    return quarantined_.size() + retried_.size();
  }
  [[nodiscard]] std::size_t leased_count() const { return leased_.size(); }

 private:
  friend class Lease;
  [[nodiscard]] Slot at(std::uint32_t index) const;
  Range range_;
  std::set<std::uint32_t> free_, leased_, quarantined_, retried_;
};

}  // namespace belljar::supervisor
