#include "launcher/disk_meter.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace belljar::launcher {
namespace {

constexpr std::chrono::seconds kPause{1};
/// Walking must not become what the machine is busy with: at most one part in so many of the time.
constexpr int kShare = 5;
constexpr std::chrono::milliseconds kPiece{5};
constexpr std::uint64_t kBlock = 512;  // Of st_blocks, whatever the file system's own are.

/// What of the host can be written, by where it comes from.
const std::string* writable_source(const Step& step) {
  if (const auto* overlay = std::get_if<MountOverlay>(&step.action))
    return overlay->upper.empty() ? nullptr : &overlay->upper;
  if (const auto* bind = std::get_if<BindMount>(&step.action))
    return bind->flags & kReadOnly ? nullptr : &bind->source;
  const auto* root = std::get_if<AttachRoot>(&step.action);
  return root != nullptr && root->source && !(root->flags & kReadOnly) ? &*root->source : nullptr;
}

/// What was opened before the launch is measured, whatever has its name by now.
sys::UniqueFd opened_before(const Step& step) {
  const auto* bind = std::get_if<BindMount>(&step.action);
  if (bind == nullptr || bind->same_as < 0) return {};
  return sys::UniqueFd(fcntl(bind->same_as, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

DiskMeter::DiskMeter(const Plan& plan) {
  for (const Step& step : plan.steps)
    if (const auto* measure = std::get_if<MeasureDisk>(&step.action)) limit_ = measure->limit;
  if (!limit_) return;
  for (const Step& step : plan.steps)
    if (const std::string* source = writable_source(step))
      places_.push_back({*source, opened_before(step), {}});
}

Status DiskMeter::begin() {
  if (!limit_) return {};
  for (Place& place : places_) {
    if (!place.fd.valid())
      place.fd = sys::UniqueFd(open(place.path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    // What is missing is the mount's own error, or optional.
    if (place.fd.valid() && fstat(place.fd.get(), &about) == 0)
      place.identity = {about.st_dev, about.st_ino};
  }
  if (!measure()) return {};
  const std::string what = why_.empty()
                               ? "what the command may write already holds more than it may"
                               : "cannot measure what the command may write: " + why_;
  return fail({ErrorKind::kRefused, 0, what, "limits.disk",
               "make room in the workspace, in writable binds and upper directories, or raise the "
               "limit"});
}

bool DiskMeter::measure() {
  if (!limit_) return false;
  start_walk();
  Walk walk = Walk::kGoesOn;
  while (walk == Walk::kGoesOn) walk = step();
  next_ = Clock::now() + kPause;
  return walk == Walk::kTooMuch;
}

bool DiskMeter::work() {
  const Clock::time_point now = Clock::now();
  if (!next_ || now < *next_) return false;
  if (frames_.empty() && next_place_ == places_.size()) start_walk();
  Walk walk = Walk::kGoesOn;
  constexpr int kBetweenLooks = 64;
  while (walk == Walk::kGoesOn && Clock::now() < now + kPiece)
    for (int i = 0; i < kBetweenLooks && walk == Walk::kGoesOn; ++i) walk = step();
  if (walk == Walk::kDone) {
    const Clock::time_point end = Clock::now();
    next_ = end + std::max<Clock::duration>(kPause, (end - walk_began_) * kShare);
  }
  return walk == Walk::kTooMuch;
}

void DiskMeter::start_walk() {
  frames_.clear();
  linked_.clear();
  why_.clear();
  next_place_ = 0;
  bytes_ = entries_ = 0;
  walk_began_ = Clock::now();
}

DiskMeter::Walk DiskMeter::step() {
  if (bytes_ > *limit_) return Walk::kTooMuch;
  if (frames_.empty()) return next_place_ == places_.size() ? Walk::kDone : enter_next_place();
  errno = 0;
  const dirent* entry = readdir(frames_.back().directory.get());
  if (entry == nullptr) {
    if (errno != 0 && errno != ENOENT) return cannot_measure(strerrordesc_np(errno));
    frames_.pop_back();
    return Walk::kGoesOn;
  }
  if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0)
    return Walk::kGoesOn;
  if (++entries_ > kMost) return cannot_measure("there are too many files");
  return count(frames_.back(), entry->d_name);
}

DiskMeter::Walk DiskMeter::enter_next_place() {
  const Place& place = places_[next_place_++];
  struct stat about {};
  if (!place.fd.valid() || fstat(place.fd.get(), &about) != 0) return Walk::kGoesOn;
  bytes_ += static_cast<std::uint64_t>(about.st_blocks) * kBlock;
  return S_ISDIR(about.st_mode) ? enter(place.fd.get(), ".", about.st_dev) : Walk::kGoesOn;
}

DiskMeter::Walk DiskMeter::count(const Frame& frame, const char* name) {
  struct stat about {};
  if (fstatat(dirfd(frame.directory.get()), name, &about, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? Walk::kGoesOn : cannot_measure(strerrordesc_np(errno));
  const bool directory = S_ISDIR(about.st_mode);
  // Another file system is not what the command fills; another place of ours is walked by itself.
  if (about.st_dev != frame.device || (directory && is_place(about.st_dev, about.st_ino)))
    return Walk::kGoesOn;
  const bool seen =
      !directory && about.st_nlink > 1 && !linked_.insert({about.st_dev, about.st_ino}).second;
  if (!seen) bytes_ += static_cast<std::uint64_t>(about.st_blocks) * kBlock;
  return directory ? enter(dirfd(frame.directory.get()), name, frame.device) : Walk::kGoesOn;
}

DiskMeter::Walk DiskMeter::enter(int parent, const char* name, dev_t device) {
  if (frames_.size() == kDeepest) return cannot_measure("directories lie too deep");
  sys::UniqueFd fd(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    // Removed, or replaced by something else, since it was looked at.
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return Walk::kGoesOn;
    return cannot_measure(std::string("directory ") + name + ": " + strerrordesc_np(errno));
  }
  DIR* directory = fdopendir(fd.get());
  if (directory == nullptr) return cannot_measure(strerrordesc_np(errno));
  (void)fd.release();
  frames_.push_back({std::unique_ptr<DIR, Close>(directory), device});
  return Walk::kGoesOn;
}

DiskMeter::Walk DiskMeter::cannot_measure(std::string why) {
  why_ = std::move(why);
  return Walk::kTooMuch;
}

bool DiskMeter::is_place(dev_t device, ino_t inode) const {
  const std::pair identity{device, inode};
  return std::any_of(places_.begin(), places_.end(),
                     [&](const Place& place) { return place.identity == identity; });
}

}  // namespace belljar::launcher
