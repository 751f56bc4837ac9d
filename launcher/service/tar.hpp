// Headers of a tar in the form of pax (POSIX.1-2001, pax(1), "ustar Interchange Format").
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace belljar::service {

inline constexpr std::size_t kTarBlock = 512;

struct TarEntry {
  enum class Kind {
    kFile,
    kDirectory,
    kExtended,  ///< The content is records about the next entry.
    kGlobal,    ///< The content is records about all that follow.
    kLongName,  ///< GNU: the content is the next entry's name.
    kOther,     ///< Links, devices, FIFOs, and what nobody knows.
  };
  Kind kind = Kind::kFile;
  std::string path;
  mode_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t modified = 0;  ///< Seconds since the epoch.
};

/// The header of an entry, with an extended one before it where its name is too long or its size
/// too large for the plain form: whole blocks.
[[nodiscard]] std::string tar_header(const TarEntry& entry);

/// The entry of a block; nothing when it is none: a wrong sum, a number that is none.
[[nodiscard]] std::optional<TarEntry> read_tar_header(std::string_view block);

/// What the records of an extended header say of the next entry.
struct TarRecords {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
  bool strange = false;  ///< Some change how the content is to be read (sparse files).
};

/// Nothing when they are malformed.
[[nodiscard]] std::optional<TarRecords> read_tar_records(std::string_view text);

}  // namespace belljar::service
