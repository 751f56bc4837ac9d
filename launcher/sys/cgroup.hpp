// Control groups: where the launcher's own are, and one directory that it makes, fills and removes.
//
// A controller is served either by a v1 hierarchy or by the one of v2, never by both (man 7
// cgroups), so each limit has one place. What is read of /proc comes in as text, and directories
// are parameters: a tree that is not the kernel's can stand in for it in tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::sys {

/// The launcher's own cgroup in one hierarchy.
struct OwnCgroup {
  int version = 2;
  std::string mount_point;
  std::string directory;  ///< Below `mount_point`, or the same.
  std::string path;       ///< As /proc/PID/cgroup names it.
};

/// Finds the hierarchy of `controller` ("memory", "pids", "cpu") and the caller's own cgroup in it.
/// `membership` is /proc/self/cgroup, `mounts` /proc/self/mountinfo. Whether the hierarchy of v2
/// has the controller is said by `cgroup.controllers` there, which this does not read.
[[nodiscard]] Result<OwnCgroup> find_own_cgroup(std::string_view membership,
                                                std::string_view mounts,
                                                std::string_view controller);

/// Counts processor time. A controller of v1; in v2 every cgroup does it, whatever it was given.
inline constexpr std::string_view kCpuAccounting = "cpuacct";

/// A directory below which a cgroup for a sandbox can be made.
struct CgroupParent {
  int version = 2;
  std::string mount_point;
  std::string directory;
  std::string path;                      ///< As /proc/PID/cgroup names it.
  std::string home;                      ///< Where the launcher is, and goes back to.
  bool needs_leaf = false;               ///< v2: the launcher first moves into a leaf below it.
  std::vector<std::string> controllers;  ///< Those of the wanted ones that it has.
};

/// What was found for the wanted controllers: a place, or why there is none.
struct CgroupPlaces {
  std::vector<CgroupParent> parents;
  std::map<std::string, Error> missing;  ///< By controller.

  [[nodiscard]] const CgroupParent* serving(std::string_view controller) const;
};

/// Whether `directory` is on a file system of the kernel's cgroups.
[[nodiscard]] bool is_cgroup_file_system(const std::string& directory);

/// Looks for a place for each of `controllers`, changing nothing. `is_real` is replaced in tests.
[[nodiscard]] CgroupPlaces find_cgroup_places(
    std::string_view membership, std::string_view mounts,
    const std::vector<std::string>& controllers,
    bool (*is_real)(const std::string&) = is_cgroup_file_system);

/// The same with this process's own /proc.
[[nodiscard]] CgroupPlaces find_cgroup_places(const std::vector<std::string>& controllers);

/// A name that no other launch has and that says who may remove it: pid namespace, process, and
/// when that started.
[[nodiscard]] std::string cgroup_name();

/// Removes what launchers that are gone have left in `directory`: names of `cgroup_name` whose
/// process is of this pid namespace and has ended. The kernel refuses to remove a cgroup that is in
/// use.
void sweep_cgroups(const std::string& directory);

/// One cgroup of a sandbox. Made and removed by its launcher, and by the sweep of a later one when
/// that was killed.
class Cgroup {
 public:
  Cgroup() = default;
  Cgroup(Cgroup&&) = default;
  Cgroup& operator=(Cgroup&&) = default;
  ~Cgroup() { remove(); }

  /// Makes `name` below the parent. v2: moves the launcher into a leaf where that is needed, and
  /// switches `controllers` on for what is below.
  [[nodiscard]] static Result<Cgroup> make(const CgroupParent& parent, const std::string& name,
                                           const std::vector<std::string>& controllers);

  /// Writes a limit and reads it back: the kernel may round bytes down to whole pages, anything
  /// else that differs is an error. ENOENT: this kernel has no such limit.
  [[nodiscard]] Status set(const std::string& file, const std::string& value);

  /// The calling process joins, so that what it clones is born inside; `leave` takes it back.
  [[nodiscard]] Status enter();
  [[nodiscard]] Status leave();

  /// Whether /proc/PID/cgroup, `membership`, says that the process is in it.
  [[nodiscard]] bool holds(std::string_view membership) const;

  /// v2, Linux 5.14: kills everything in it at once. Harmless elsewhere.
  void kill() const;

  /// A number that is all of a file, or stands behind `key` in it.
  [[nodiscard]] std::optional<std::uint64_t> number(const char* file,
                                                    std::string_view key = {}) const;

  /// The same for one that has to be there; the error names it.
  [[nodiscard]] Result<std::uint64_t> counter(const char* file, std::string_view key = {}) const;

  /// v1: an eventfd that becomes readable when memory has run out. Invalid where there is none.
  [[nodiscard]] UniqueFd watch_memory() const;

  /// Waits for a moment until the kernel has let go of the last process, then removes it. False
  /// when it is still in use; a later launch sweeps it.
  bool remove();

  [[nodiscard]] bool valid() const { return directory_.valid(); }
  [[nodiscard]] int version() const { return version_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  [[nodiscard]] Status prepare_parent(const CgroupParent& parent,
                                      const std::vector<std::string>& controllers);
  [[nodiscard]] Status enter_leaf(const CgroupParent& parent);
  void leave_leaf();

  int version_ = 2;
  std::string name_;
  std::string where_;  ///< The parent's directory, for messages.
  std::string path_;   ///< As /proc/PID/cgroup names it.
  UniqueFd parent_;
  UniqueFd directory_;
  UniqueFd home_;  ///< `cgroup.procs` of the launcher's own, opened before it leaves.
  bool inside_ = false;
  std::string leaf_;       ///< The launcher's own leaf below the parent, when there is one.
  std::string to_switch_;  ///< "+memory +pids", to be taken back with the leaf.
};

}  // namespace belljar::sys
