#include "api/ctl/tree.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "policy/base/result.hpp"
#include "policy/base/unique_fd.hpp"
#include "policy/quote.hpp"

namespace belljar::ctl {
namespace {

constexpr std::size_t kPiece = std::size_t{256} << 10;

struct FreeArchive {
  void operator()(archive* handle) const { archive_free(handle); }
};
struct FreeEntry {
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};
struct CloseWalk {
  void operator()(FTS* walk) const { fts_close(walk); }
};
using Archive = std::unique_ptr<archive, FreeArchive>;
using Entry = std::unique_ptr<archive_entry, FreeEntry>;

tl::unexpected<Failure> archive_failed(archive* handle, const std::string& what) {
  const char* why = archive_error_string(handle);
  return failed(FailureKind::kLocal, what + ": " + (why == nullptr ? "libarchive failed" : why));
}

int by_name(const FTSENT** one, const FTSENT** other) {
  return std::strcmp((*one)->fts_name, (*other)->fts_name);
}

}  // namespace

// --- out of here

struct TreeReader::State {
  std::string root, prefix, ready;
  std::vector<std::string> left_out;
  Archive tar{archive_write_new()};
  std::unique_ptr<FTS, CloseWalk> walk;
  UniqueFd file;
  std::uint64_t left = 0;  ///< Of the file that is being read.
  bool finished = false;

  static la_ssize_t take(archive*, void* self, const void* bytes, size_t size) {
    static_cast<State*>(self)->ready.append(static_cast<const char*>(bytes), size);
    return static_cast<la_ssize_t>(size);
  }

  void leave_out(const std::string& path, const std::string& why) {
    left_out.push_back("left out: " + path + ": " + why);
  }

  Done add_header(const FTSENT& found, const struct stat& about, std::uint64_t size) {
    const Entry entry(archive_entry_new());
    std::string name = std::string(found.fts_path).substr(root.size());
    name = prefix.empty() ? name.substr(std::min<std::size_t>(1, name.size())) : prefix + name;
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_filetype(entry.get(), S_ISDIR(about.st_mode) ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry.get(), about.st_mode & 0777);
    archive_entry_set_mtime(entry.get(), about.st_mtim.tv_sec, 0);
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(size));
    if (archive_write_header(tar.get(), entry.get()) == ARCHIVE_OK) return {};
    return archive_failed(tar.get(), "put " + name + " into the tar");
  }

  Done add_file(const FTSENT& found) {
    file.reset(::open(found.fts_accpath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat about {};
    if (!file.valid() || fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
      leave_out(found.fts_path, file.valid() ? "is no plain file" : std::strerror(errno));
      file.reset();
      return {};
    }
    left = static_cast<std::uint64_t>(about.st_size);
    return add_header(found, about, left);
  }

  /// Exactly as much as the header says, however the file changes meanwhile.
  Done add_bytes() {
    std::array<char, 65536> piece{};
    const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(left, piece.size()));
    const ssize_t got = read(file.get(), piece.data(), most);
    if (got < 0 && errno == EINTR) return {};
    if (got <= 0)
      return failed(FailureKind::kLocal, "a file became shorter while it was read, or cannot be: " +
                                             std::string(std::strerror(errno)));
    if (archive_write_data(tar.get(), piece.data(), static_cast<std::size_t>(got)) < 0)
      return archive_failed(tar.get(), "put a file into the tar");
    left -= static_cast<std::uint64_t>(got);
    return {};
  }

  Done step() {
    if (file.valid() && left > 0) return add_bytes();
    file.reset();
    errno = 0;
    const FTSENT* found = fts_read(walk.get());
    if (found == nullptr) {
      if (errno != 0) return call_failed(errno, "walk " + root);
      finished = true;
      if (archive_write_close(tar.get()) != ARCHIVE_OK)
        return archive_failed(tar.get(), "finish the tar");
      return {};
    }
    switch (found->fts_info) {
      case FTS_D:
        if (found->fts_level == FTS_ROOTLEVEL && prefix.empty()) return {};
        return add_header(*found, *found->fts_statp, 0);
      case FTS_DP:
        return {};
      case FTS_F:
        return add_file(*found);
      case FTS_DNR:
      case FTS_ERR:
      case FTS_NS:
        leave_out(found->fts_path, std::strerror(found->fts_errno));
        return {};
      default:
        leave_out(found->fts_path, "is neither a file nor a directory");
        return {};
    }
  }
};

TreeReader::TreeReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TreeReader::~TreeReader() = default;

Outcome<std::unique_ptr<TreeReader>> TreeReader::open(const std::string& directory,
                                                      const std::string& prefix) {
  auto state = std::make_unique<State>();
  state->root = directory;
  while (state->root.size() > 1 && state->root.ends_with('/')) state->root.pop_back();
  state->prefix = prefix;
  std::array<char*, 2> roots = {state->root.data(), nullptr};
  state->walk.reset(fts_open(roots.data(), FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name));
  if (!state->walk) return call_failed(errno, "open " + directory);
  archive* tar = state->tar.get();
  archive_write_set_format_pax_restricted(tar);
  // Names are bytes: whatever this machine takes them for.
  archive_write_set_options(tar, "hdrcharset=BINARY");
  archive_write_set_bytes_per_block(tar, 0);
  if (archive_write_open(tar, state.get(), nullptr, State::take, nullptr) != ARCHIVE_OK)
    return archive_failed(tar, "begin a tar");
  return std::unique_ptr<TreeReader>(new TreeReader(std::move(state)));
}

Outcome<std::string> TreeReader::next() {
  while (!state_->finished && state_->ready.size() < kPiece) BELLJAR_CHECK(state_->step());
  return std::exchange(state_->ready, {});
}

const std::vector<std::string>& TreeReader::left_out() const { return state_->left_out; }

// --- into here

namespace {

bool leads_inside(std::string_view path) {
  if (path.empty() || path.front() == '/') return false;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (path.substr(0, end) == "..") return false;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return true;
}

Done copy_bytes(archive* tar, archive* disk, const std::string& path) {
  for (;;) {
    const void* bytes = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int read = archive_read_data_block(tar, &bytes, &size, &offset);
    if (read == ARCHIVE_EOF) return {};
    if (read != ARCHIVE_OK) return archive_failed(tar, "read the tar");
    if (archive_write_data_block(disk, bytes, size, offset) < 0)
      return archive_failed(disk, "write " + path);
  }
}

Done make_entry(archive* tar, archive* disk, archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  const std::string path = name == nullptr ? "" : name;
  const auto type = archive_entry_filetype(entry);
  const bool link = archive_entry_hardlink(entry) != nullptr;
  if (!leads_inside(path) || link || (type != AE_IFREG && type != AE_IFDIR))
    return failed(FailureKind::kLocal,
                  "the tar has " + policy::in_quotes(path) +
                      ", which is neither a file nor a directory below its own");
  if (archive_write_header(disk, entry) != ARCHIVE_OK) return archive_failed(disk, "make " + path);
  BELLJAR_CHECK(copy_bytes(tar, disk, path));
  if (archive_write_finish_entry(disk) != ARCHIVE_OK) return archive_failed(disk, "write " + path);
  return {};
}

}  // namespace

Done write_tree(const std::string& directory, int pipe) {
  // libarchive looks for links in all of a path, so that the caller's own part must not be in it.
  if (chdir(directory.c_str()) != 0) return call_failed(errno, "enter " + directory);
  const Archive tar(archive_read_new());
  archive_read_support_format_tar(tar.get());
  if (archive_read_open_fd(tar.get(), pipe, kPiece) != ARCHIVE_OK)
    return archive_failed(tar.get(), "read the tar");
  const Archive disk(archive_write_disk_new());
  archive_write_disk_set_options(disk.get(), ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                                                 ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                                                 ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
  for (;;) {
    archive_entry* entry = nullptr;
    const int read = archive_read_next_header(tar.get(), &entry);
    if (read == ARCHIVE_EOF) return {};
    if (read != ARCHIVE_OK) return archive_failed(tar.get(), "read the tar");
    BELLJAR_CHECK(make_entry(tar.get(), disk.get(), entry));
  }
}

}  // namespace belljar::ctl
