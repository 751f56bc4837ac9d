// limits.disk: what the directories that the command can write hold, measured from outside.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/plan.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// Walks everything that the plan binds writable, again and again, a piece at a time. It follows no
/// link, leaves no file system, and opens nothing but directories, so the command cannot lead it
/// anywhere. What it cannot measure counts as too much: a directory that cannot be read, more than
/// `kDeepest` levels, more than `kMost` entries. Idle for plans that do not ask for it.
class DiskMeter {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kDeepest = 100;
  static constexpr std::uint64_t kMost = 4'000'000;

  explicit DiskMeter(const Plan& plan);

  /// Opens the places and measures them once: an error when they already hold too much.
  [[nodiscard]] Status begin();

  [[nodiscard]] std::optional<std::uint64_t> limit() const { return limit_; }

  /// When there is work to do; nothing when there never is.
  [[nodiscard]] std::optional<Clock::time_point> next() const { return next_; }

  /// Does a piece of it, a few milliseconds at most. True when there is too much.
  bool work();

  /// A whole walk now. True when there is too much.
  bool measure();

 private:
  struct Close {
    void operator()(DIR* directory) const { closedir(directory); }
  };
  struct Frame {
    std::unique_ptr<DIR, Close> directory;
    dev_t device = 0;
  };
  struct Place {
    std::string path;
    sys::UniqueFd fd;
    std::pair<dev_t, ino_t> identity;
  };
  enum class Walk { kGoesOn, kDone, kTooMuch };

  void start_walk();
  Walk step();
  Walk enter_next_place();
  Walk count(const Frame& frame, const char* name);
  Walk enter(int parent, const char* name, dev_t device);
  Walk cannot_measure(std::string why);
  [[nodiscard]] bool is_place(dev_t device, ino_t inode) const;

  std::optional<std::uint64_t> limit_;
  std::vector<Place> places_;
  std::vector<Frame> frames_;
  std::size_t next_place_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t entries_ = 0;
  std::set<std::pair<dev_t, ino_t>> linked_;  ///< Files with several names, counted once.
  std::string why_;
  Clock::time_point walk_began_;
  std::optional<Clock::time_point> next_;
};

}  // namespace belljar::launcher
