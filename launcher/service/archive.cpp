#include "launcher/service/archive.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "launcher/service/fresh_file.hpp"
#include "launcher/service/inside.hpp"
#include "launcher/service/message.hpp"
#include "launcher/service/tar.hpp"
#include "policy/quote.hpp"
#include "policy/units.hpp"

namespace belljar::service {
namespace {

using policy::in_quotes;
using sys::UniqueFd;
using Json = nlohmann::ordered_json;

/// How long the other end of the pipe may do nothing.
constexpr int kPatienceMs = 30000;
constexpr std::uint64_t kMostArchived = 100000;
constexpr std::uint64_t kLargestTotal = std::uint64_t{4} << 30;
constexpr std::uint64_t kDeepest = 64;
constexpr std::uint64_t kLongestRecords = 64 << 10;

Outcome<void> wait_for(int pipe, short what) {
  pollfd place{pipe, what, 0};
  int ready = -1;
  do ready = poll(&place, 1, kPatienceMs);
  while (ready < 0 && errno == EINTR);
  if (ready > 0) return {};
  return refuse(Code::kTimeout, "nothing moved in the pipe for 30 s");
}

// --- out
// ------------------------------------------------------------------------------------------

class Writer {
 public:
  Writer(int pipe, uid_t owner) : pipe_(pipe), owner_(owner) {}

  Outcome<void> walk(int directory, const std::string& prefix, std::uint64_t depth) {
    for (const std::string& name : names_in(directory)) {
      struct stat about {};
      if (fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (S_ISDIR(about.st_mode))
        BELLJAR_CHECK(add_directory(directory, name, prefix, about, depth));
      else if (is_plain(about, owner_))
        BELLJAR_CHECK(add_file(directory, name, prefix));
      else
        ++left_out_;
    }
    return {};
  }

  Outcome<Finding> finish() {
    BELLJAR_CHECK(put(std::string(2 * kTarBlock, '\0')));
    return Finding{Json{{"entries", entries_}, {"left_out", left_out_}}.dump(), {}};
  }

 private:
  static std::vector<std::string> names_in(int directory) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> list(
        fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        [](DIR* open) { return open == nullptr ? 0 : closedir(open); });
    while (const dirent* entry = list ? readdir(list.get()) : nullptr) {
      const std::string_view name = static_cast<const char*>(entry->d_name);
      if (name != "." && name != ".." && names.size() <= kMostArchived) names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Outcome<void> add_header(TarEntry entry, const struct stat& about) {
    if (++entries_ > kMostArchived)
      return refuse(Code::kTooLarge, "there are more than 100000 entries");
    entry.mode = about.st_mode & 0777;
    entry.modified = about.st_mtim.tv_sec;
    return put(tar_header(entry));
  }

  Outcome<void> add_directory(int parent, const std::string& name, const std::string& prefix,
                              const struct stat& about, std::uint64_t depth) {
    const UniqueFd directory(
        openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!directory.valid() || depth == kDeepest) {
      ++left_out_;
      return {};
    }
    TarEntry entry;
    entry.kind = TarEntry::Kind::kDirectory;
    entry.path = prefix + name;
    BELLJAR_CHECK(add_header(std::move(entry), about));
    return walk(directory.get(), prefix + name + "/", depth + 1);
  }

  Outcome<void> add_file(int parent, const std::string& name, const std::string& prefix) {
    const Outcome<OpenedFile> opened = open_plain(parent, name, owner_);
    if (!opened) {
      ++left_out_;
      return {};
    }
    TarEntry entry;
    entry.path = prefix + name;
    entry.size = static_cast<std::uint64_t>(opened->about.st_size);
    const std::uint64_t size = entry.size;
    BELLJAR_CHECK(add_header(std::move(entry), opened->about));
    std::array<char, 65536> piece{};
    // Exactly as much as the header says, however the file changes meanwhile.
    for (std::uint64_t left = size; left > 0;) {
      const std::size_t most = std::min<std::uint64_t>(left, piece.size());
      const ssize_t got = read(opened->file.get(), piece.data(), most);
      if (got <= 0) std::fill_n(piece.begin(), most, '\0');
      const std::size_t part = got <= 0 ? most : static_cast<std::size_t>(got);
      BELLJAR_CHECK(put({piece.data(), part}));
      left -= part;
    }
    return put(std::string((kTarBlock - size % kTarBlock) % kTarBlock, '\0'));
  }

  Outcome<void> put(std::string_view bytes) {
    while (!bytes.empty()) {
      BELLJAR_CHECK(wait_for(pipe_, POLLOUT));
      const ssize_t wrote = write(pipe_, bytes.data(), bytes.size());
      if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (wrote < 0) return call_failed(errno, "write to the pipe");
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    }
    return {};
  }

  int pipe_;
  uid_t owner_;
  std::uint64_t entries_ = 0, left_out_ = 0;
};

// --- in
// -------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(int pipe, int directory, uid_t owner)
      : pipe_(pipe), directory_(directory), owner_(owner) {}

  Outcome<Finding> all() {
    for (;;) {
      const std::string block = BELLJAR_TRY(take(kTarBlock));
      if (block.find_first_not_of('\0') == std::string::npos) break;
      const std::optional<TarEntry> header = read_tar_header(block);
      if (!header) return refuse(Code::kInvalid, "the tar has a header that is none");
      BELLJAR_CHECK(add(*header));
    }
    BELLJAR_CHECK(drain());
    return Finding{Json{{"entries", entries_}}.dump(), {}};
  }

 private:
  Outcome<void> add(TarEntry entry) {
    using Kind = TarEntry::Kind;
    const bool about_next = entry.kind == Kind::kExtended || entry.kind == Kind::kLongName ||
                            entry.kind == Kind::kGlobal;
    if (about_next) return add_records(entry);
    if (next_.path) entry.path = *next_.path;
    if (next_.size) entry.size = *next_.size;
    next_ = {};
    if (entry.kind == Kind::kOther)
      return refuse(Code::kRefused, in_quotes(entry.path) + " is neither a file nor a directory");
    std::string path = entry.path;
    while (path.starts_with("./")) path.erase(0, 2);
    while (path.ends_with("/")) path.pop_back();
    if (entry.kind == Kind::kDirectory && (path.empty() || path == ".")) return {};
    if (!is_inner_path(path))
      return refuse(Code::kRefused,
                    in_quotes(entry.path) + " is absolute, or has \"..\" or empty parts");
    if (++entries_ > kMostArchived)
      return refuse(Code::kTooLarge, "there are more than 100000 entries");
    entry.path = path;
    return entry.kind == Kind::kDirectory ? make_directory(entry) : make_file(entry);
  }

  Outcome<void> add_records(const TarEntry& entry) {
    if (entry.size > kLongestRecords)
      return refuse(Code::kTooLarge, "the tar has an extended header of more than 64 KiB");
    const std::string text = BELLJAR_TRY(take(padded(entry.size))).substr(0, entry.size);
    if (entry.kind == TarEntry::Kind::kGlobal) return {};
    if (entry.kind == TarEntry::Kind::kLongName) {
      next_.path = text.substr(0, text.find('\0'));
      return {};
    }
    const std::optional<TarRecords> records = read_tar_records(text);
    if (!records) return refuse(Code::kInvalid, "the tar has an extended header that is none");
    if (records->strange) return refuse(Code::kRefused, "the tar has a sparse file");
    next_ = *records;
    return {};
  }

  Outcome<void> make_directory(const TarEntry& entry) {
    const UniqueFd parent = BELLJAR_TRY(open_parent(directory_, entry.path, Parents::kMake));
    const std::string name = last_part(entry.path);
    struct stat about {};
    if (mkdirat(parent.get(), name.c_str(), entry.mode & 0777) == 0) return skip(entry.size);
    if (errno != EEXIST) return call_failed(errno, "make the directory " + in_quotes(entry.path));
    if (fstatat(parent.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(about.st_mode))
      return refuse(Code::kRefused, in_quotes(entry.path) + " is there, and no directory");
    return skip(entry.size);
  }

  Outcome<void> make_file(const TarEntry& entry) {
    if (entry.size > kLargestFile || (total_ += entry.size) > kLargestTotal)
      return refuse(Code::kTooLarge, in_quotes(entry.path) + " is too large, or all together are");
    const UniqueFd parent = BELLJAR_TRY(open_parent(directory_, entry.path, Parents::kMake));
    const std::string name = last_part(entry.path);
    struct stat about {};
    if (fstatat(parent.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        !is_plain(about, owner_))
      return refuse(Code::kRefused,
                    in_quotes(entry.path) + " is there, and no regular file of the session's");
    FreshFile fresh(parent.get(), entry.mode & 0777);
    if (fresh.error() != 0)
      return call_failed(fresh.error(), "make the file " + in_quotes(entry.path));
    for (std::uint64_t left = entry.size; left > 0;) {
      const std::string piece = BELLJAR_TRY(take(std::min<std::uint64_t>(left, 65536)));
      if (const int error = write_all(fresh.fd(), piece); error != 0)
        return call_failed(error, "write the file " + in_quotes(entry.path));
      left -= piece.size();
    }
    BELLJAR_TRY(take(padded(entry.size) - entry.size));
    if (const int error = fresh.take_name(name); error != 0)
      return call_failed(error, "replace " + in_quotes(entry.path));
    return {};
  }

  static std::uint64_t padded(std::uint64_t size) {
    return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
  }

  /// A directory has no content, whatever its header says of one.
  Outcome<void> skip(std::uint64_t size) {
    if (size == 0) return {};
    return refuse(Code::kInvalid, "the tar has a directory with content");
  }

  /// Exactly so many bytes.
  Outcome<std::string> take(std::uint64_t size) {
    std::string bytes(size, '\0');
    for (std::size_t done = 0; done < bytes.size();) {
      const std::size_t got = BELLJAR_TRY(take_some(bytes.data() + done, bytes.size() - done));
      if (got == 0) return refuse(Code::kInvalid, "the tar ends in the middle of an entry");
      done += got;
    }
    return bytes;
  }

  Outcome<std::size_t> take_some(char* where, std::size_t most) {
    for (;;) {
      BELLJAR_CHECK(wait_for(pipe_, POLLIN));
      const ssize_t got = read(pipe_, where, most);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) return call_failed(errno, "read from the pipe");
      return static_cast<std::size_t>(got);
    }
  }

  /// What stands behind the end is nobody's, but its writer wants to be rid of it.
  Outcome<void> drain() {
    std::array<char, 4096> piece{};
    while (BELLJAR_TRY(take_some(piece.data(), piece.size())) > 0) {
    }
    return {};
  }

  int pipe_;
  int directory_;
  uid_t owner_;
  TarRecords next_;
  std::uint64_t entries_ = 0, total_ = 0;
};

}  // namespace

Outcome<Finding> write_archive(int workspace, uid_t owner, const std::string& path, int pipe) {
  const UniqueFd directory = BELLJAR_TRY(open_directory(workspace, path));
  Writer writer(pipe, owner);
  BELLJAR_CHECK(writer.walk(directory.get(), "", 1));
  return writer.finish();
}

Outcome<Finding> read_archive(int workspace, uid_t owner, const std::string& path, int pipe) {
  const UniqueFd directory = BELLJAR_TRY(open_directory(workspace, path));
  return Reader(pipe, directory.get(), owner).all();
}

}  // namespace belljar::service
