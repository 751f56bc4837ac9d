// A top-down walk of a workspace, as far as it is asked for and no further than it is bounded.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "launcher/service/file_work.hpp"
#include "launcher/service/helper_process.hpp"
#include "policy/base64.hpp"
#include "policy/setting.hpp"

namespace belljar::service {
namespace {

using sys::UniqueFd;
using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;
using Json = nlohmann::ordered_json;

struct Named {
  std::string name;
  struct stat about {};
};

class Lister {
 public:
  Lister(const List& order, uid_t owner) : order_(order), owner_(owner) {}

  /// `prefix` is empty, or the path of `directory` with a slash behind it.
  void walk(int directory, const std::string& prefix, std::uint64_t depth) {
    std::vector<Named> files, directories;
    read(directory, files, directories);
    for (const Named& file : files) add(directory, prefix, file);
    for (const Named& inner : directories) {
      add(directory, prefix, inner);
      const auto& skipped = order_.skip;
      if (depth == order_.depth || full_ ||
          std::find(skipped.begin(), skipped.end(), inner.name) != skipped.end())
        continue;
      const UniqueFd open(openat(directory, inner.name.c_str(),
                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (open.valid()) walk(open.get(), prefix + inner.name + "/", depth + 1);
    }
  }

  Outcome<Finding> finish() {
    UniqueFd memory = sealed_memfd("belljar-list", "{\"entries\":[" + text_ + "]}");
    if (!memory.valid()) return call_failed(errno, "make a memfd for the list");
    return Finding{Json{{"truncated", truncated_}}.dump(), std::move(memory)};
  }

 private:
  void read(int directory, std::vector<Named>& files, std::vector<Named>& directories) {
    const Listing list(fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                       [](DIR* open) { return open == nullptr ? 0 : closedir(open); });
    while (const dirent* entry = list ? readdir(list.get()) : nullptr) {
      Named named;
      named.name = static_cast<const char*>(entry->d_name);
      if (named.name == "." || named.name == "..") continue;
      if (fstatat(directory, named.name.c_str(), &named.about, AT_SYMLINK_NOFOLLOW) != 0) continue;
      // What would never fit is not remembered, so that a directory of a million costs no memory.
      if (files.size() + directories.size() >= kMostEntries) {
        truncated_ = true;
        break;
      }
      const bool inner = S_ISDIR(named.about.st_mode);
      (inner ? directories : files).push_back(std::move(named));
    }
    const auto by_name = [](const Named& a, const Named& b) { return a.name < b.name; };
    std::sort(files.begin(), files.end(), by_name);
    std::sort(directories.begin(), directories.end(), by_name);
  }

  void add(int directory, const std::string& prefix, const Named& named) {
    if (full_ || entries_ == kMostEntries) {
      full_ = truncated_ = true;
      return;
    }
    const std::string path = prefix + named.name;
    Json entry;
    entry["path"] = path;
    if (!policy::is_text(path)) entry["path_base64"] = policy::base64(path);
    entry["type"] = S_ISDIR(named.about.st_mode)    ? "directory"
                    : is_plain(named.about, owner_) ? "file"
                                                    : "other";
    entry["size"] = named.about.st_size;
    entry["mode"] = named.about.st_mode & 07777;
    entry["modified_ms"] =
        std::int64_t{named.about.st_mtim.tv_sec} * 1000 + named.about.st_mtim.tv_nsec / 1000000;
    if (order_.content > 0 && is_plain(named.about, owner_)) add_content(entry, directory, named);
    const std::string text = entry.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text_.size() + text.size() > kLargestBody - 64) {
      full_ = truncated_ = true;
      return;
    }
    if (entries_++ > 0) text_ += ",";
    text_ += text;
  }

  void add_content(Json& entry, int directory, const Named& named) {
    const auto size = static_cast<std::uint64_t>(named.about.st_size);
    if (size > order_.content || size > order_.total - contents_) {
      entry["too_large"] = true;
      return;
    }
    const Outcome<OpenedFile> opened = open_plain(directory, named.name, owner_);
    std::string content(size, '\0');
    const ssize_t got =
        opened ? pread(opened->file.get(), content.data(), content.size(), 0) : ssize_t{-1};
    if (got < 0) return;
    content.resize(static_cast<std::size_t>(got));
    contents_ += content.size();
    entry["content_base64"] = policy::base64(content);
  }

  const List& order_;
  uid_t owner_;
  std::string text_;
  std::size_t entries_ = 0;
  std::uint64_t contents_ = 0;
  bool truncated_ = false;
  bool full_ = false;
};

}  // namespace

Outcome<Finding> list_files(int workspace, uid_t owner, const List& order) {
  const UniqueFd directory = BELLJAR_TRY(open_directory(workspace, order.path));
  Lister lister(order, owner);
  lister.walk(directory.get(), order.path.empty() ? "" : order.path + "/", 1);
  return lister.finish();
}

}  // namespace belljar::service
