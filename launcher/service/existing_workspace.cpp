#include "launcher/service/existing_workspace.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "launcher/service/inside.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/resolve.hpp"
#include "policy/paths.hpp"
#include "policy/quote.hpp"
#include "policy/units.hpp"

namespace belljar::service {
namespace {

using Json = nlohmann::ordered_json;
using policy::in_quotes;
using sys::UniqueFd;
using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;

/// Each level has three descriptors open. What is deeper is left as it is: anybody who works there
/// can make such a tree, and stops no claim and no later session by it.
constexpr int kDeepest = 256;
constexpr std::uint64_t kMostEntries = 1'000'000;

/// The mount that a descriptor is of: a bind of the same file system has its device, and is another
/// one. Nothing where the kernel does not say.
std::optional<std::uint64_t> mount_of(int fd) {
  struct statx about {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &about) != 0 ||
      (about.stx_mask & STATX_MNT_ID) == 0)
    return std::nullopt;
  return about.stx_mnt_id;
}

class HandOver {
 public:
  HandOver(uid_t uid, gid_t gid, const OthersPlaces& others)
      : uid_(uid), gid_(gid), others_(others) {}

  Outcome<void> tree(int directory, int depth, std::uint64_t mount) {
    const Listing list(fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                       [](DIR* open) { return open == nullptr ? 0 : closedir(open); });
    if (!list) return call_failed(errno, "read a directory");
    while (const dirent* entry = readdir(list.get())) {
      const char* name = static_cast<const char*>(entry->d_name);
      if (std::string_view(name) == "." || std::string_view(name) == "..") continue;
      if (++entries_ > kMostEntries)
        return refuse(Code::kTooLarge, "more than " + std::to_string(kMostEntries) + " entries");
      BELLJAR_CHECK(this->entry(directory, name, depth, mount));
    }
    return {};
  }

  /// By the descriptor: whatever has that name by now.
  void change(int found, const struct stat& about) {
    if (about.st_uid == uid_ && about.st_gid == gid_) return;
    const bool changed = fchownat(found, "", uid_, gid_, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0;
    ++(changed ? changed_ : left_out_);
  }

  /// However it has come to be in here.
  [[nodiscard]] bool is_anothers(const struct stat& about) const {
    const std::pair<std::uint64_t, std::uint64_t> place(about.st_dev, about.st_ino);
    return std::find(others_.begin(), others_.end(), place) != others_.end();
  }

  [[nodiscard]] std::string json() const {
    return "{\"changed\":" + std::to_string(changed_) +
           ",\"left_out\":" + std::to_string(left_out_) + "}";
  }

 private:
  Outcome<void> entry(int directory, const char* name, int depth, std::uint64_t mount) {
    const UniqueFd found(openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    if (!found.valid() || fstat(found.get(), &about) != 0) return {};  // It has gone.
    const bool plain = S_ISLNK(about.st_mode) ||
                       (S_ISREG(about.st_mode) && (about.st_mode & (S_ISUID | S_ISGID)) == 0);
    const bool taken = S_ISDIR(about.st_mode) || (plain && about.st_nlink == 1);
    const bool too_deep = S_ISDIR(about.st_mode) && depth >= kDeepest;
    if (mount_of(found.get()) != mount || !taken || too_deep || is_anothers(about)) {
      ++left_out_;
      return {};
    }
    if (S_ISDIR(about.st_mode)) {
      const UniqueFd inner(
          openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      struct stat same {};
      // What has been exchanged meanwhile is somebody's game, and is left alone.
      if (!inner.valid() || fstat(inner.get(), &same) != 0 || same.st_ino != about.st_ino ||
          same.st_dev != about.st_dev) {
        ++left_out_;
        return {};
      }
      BELLJAR_CHECK(tree(inner.get(), depth + 1, mount));
    }
    change(found.get(), about);
    return {};
  }

  uid_t uid_;
  gid_t gid_;
  const OthersPlaces& others_;
  std::uint64_t entries_ = 0, changed_ = 0, left_out_ = 0;
};

}  // namespace

Outcome<Finding> find_existing(const std::vector<std::string>& roots, const std::string& path) {
  const auto normal = policy::normalise_path(path);
  if (!normal || *normal != path)
    return refuse(Code::kInvalid, "workspace: expected an absolute path without \"..\", got " +
                                      std::string(in_quotes(path)));
  const auto root = std::find_if(roots.begin(), roots.end(), [&](const std::string& one) {
    return policy::is_within(path, one);
  });
  if (root == roots.end())
    return refuse(Code::kRefused, std::string(in_quotes(path)) +
                                      " lies below no workspace root; its operator allows one with "
                                      "--workspace-root");
  const Result<UniqueFd> top = sys::open_trusted(*root);
  if (!top) return tl::unexpected<Fault>(fault_of(top.error()));
  const std::string inner = path == *root ? "" : path.substr(*root == "/" ? 1 : root->size() + 1);
  Finding found;
  found.descriptor = BELLJAR_TRY(open_directory(top->get(), inner));
  struct stat about {};
  if (fstat(found.descriptor.get(), &about) != 0)
    return call_failed(errno, "look at " + std::string(in_quotes(path)));
  found.json =
      Json{{"owner", about.st_uid}, {"device", about.st_dev}, {"inode", about.st_ino}}.dump();
  return found;
}

Outcome<ExistingWorkspace> existing_of(Answer found, const std::string& path) {
  const Json told = Json::parse(found.body, nullptr, /*allow_exceptions=*/false);
  const auto number = [&told](const char* name) {
    const Json::json_pointer where = Json::json_pointer("/ok") / std::string(name);
    return told.contains(where) ? told[where].get<std::uint64_t>() : 0;
  };
  if (!found.descriptor.valid()) return refuse(Code::kSystem, "the helper has opened nothing");
  ExistingWorkspace existing;
  existing.directory = std::move(found.descriptor);
  existing.path = path;
  existing.owner = static_cast<uid_t>(number("owner"));
  existing.device = number("device");
  existing.inode = number("inode");
  const auto place = sys::place_of(existing.directory.get(), sys::mount_table());
  if (!place)
    return refuse(Code::kRefused, "where " + std::string(in_quotes(path)) + " lies is not known");
  existing.place = *place;
  return existing;
}

Outcome<Finding> find_gone(const std::vector<std::pair<int, std::string>>& held) {
  constexpr std::size_t kMost = 256;  // A message has its bound; the next answer has the rest.
  Json names = Json::array();
  for (const auto& [directory, name] : held) {
    struct statx about {};
    // As far as it is known here: no server is waited for.
    const bool is_there =
        statx(directory, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &about) == 0 &&
        about.stx_nlink > 0;
    if (!is_there && names.size() < kMost) names.push_back(name);
  }
  return Finding{Json{{"workspaces", std::move(names)}}.dump(), {}};
}

Outcome<Finding> hand_over(int directory, uid_t uid, gid_t gid, const OthersPlaces& others) {
  struct stat about {};
  if (fstat(directory, &about) != 0) return call_failed(errno, "look at the workspace");
  HandOver work(uid, gid, others);
  const std::optional<std::uint64_t> mount = mount_of(directory);
  if (!mount)
    return refuse(Code::kRefused, "the kernel does not tell mounts apart (statx, Linux 5.8)");
  BELLJAR_CHECK(work.tree(directory, 0, *mount));
  if (fchown(directory, uid, gid) != 0) return call_failed(errno, "chown the workspace");
  return Finding{work.json(), {}};
}

void keep_for_chown() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> kept{};
  kept[0].effective = kept[0].permitted = 1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE;
  if (sys::raw(SYS_capset, &header, kept.data()) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    _exit(1);
}

}  // namespace belljar::service
