#include "launcher/service/tar.hpp"

#include <algorithm>
#include <cstring>

#include "policy/units.hpp"

namespace belljar::service {
namespace {

/// struct header_posix_ustar.
struct Header {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char modified[12];
  char sum[8];
  char kind;
  char link[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char major[8];
  char minor[8];
  char prefix[155];
  char unused[12];
};
static_assert(sizeof(Header) == kTarBlock);

constexpr std::uint64_t kLargestPlain = 077777777777;  // Eleven octal digits.

template <std::size_t kSize>
void put(char (&field)[kSize], std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), kSize), field);
}

/// Octal digits and a NUL.
template <std::size_t kSize>
void put_number(char (&field)[kSize], std::uint64_t number) {
  for (std::size_t i = kSize - 1; i-- > 0; number >>= 3)
    field[i] = static_cast<char>('0' + (number & 7));
}

template <std::size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  return {field, strnlen(field, kSize)};
}

template <std::size_t kSize>
std::optional<std::uint64_t> number_of(const char (&field)[kSize]) {
  std::uint64_t number = 0;
  std::size_t i = 0;
  while (i < kSize && field[i] == ' ') ++i;
  for (; i < kSize && field[i] >= '0' && field[i] <= '7'; ++i) {
    if (number >> 60 != 0) return std::nullopt;
    number = number << 3 | static_cast<std::uint64_t>(field[i] - '0');
  }
  if (i < kSize && field[i] != ' ' && field[i] != '\0') return std::nullopt;
  return number;
}

/// The sum of all bytes, those of the sum itself taken as blanks.
std::uint64_t sum_of(Header header) {
  std::memset(header.sum, ' ', sizeof header.sum);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < sizeof header; ++i) sum += bytes[i];
  return sum;
}

std::string block_of(const TarEntry& entry, char kind) {
  Header header{};
  put(header.name, entry.path);
  put_number(header.mode, entry.mode);
  put_number(header.uid, 0);
  put_number(header.gid, 0);
  put_number(header.size, std::min(entry.size, kLargestPlain));
  put_number(header.modified,
             static_cast<std::uint64_t>(std::max<std::int64_t>(entry.modified, 0)));
  header.kind = kind;
  put(header.magic, {"ustar\0", 6});
  put(header.version, "00");
  put_number(header.sum, sum_of(header));
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

/// "LENGTH KEY=VALUE\n", where the length counts its own digits.
std::string record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length)
    length = std::to_string(length).size() + rest;
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

TarEntry::Kind kind_of(char letter) {
  switch (letter) {
    case '0':
    case '\0':
      return TarEntry::Kind::kFile;
    case '5':
      return TarEntry::Kind::kDirectory;
    case 'x':
      return TarEntry::Kind::kExtended;
    case 'g':
      return TarEntry::Kind::kGlobal;
    case 'L':
      return TarEntry::Kind::kLongName;
    default:
      return TarEntry::Kind::kOther;
  }
}

}  // namespace

std::string tar_header(const TarEntry& entry) {
  const bool directory = entry.kind == TarEntry::Kind::kDirectory;
  TarEntry written = entry;
  if (directory) written.path += "/";
  std::string records;
  if (written.path.size() > sizeof Header::name) records += record("path", written.path);
  if (written.size > kLargestPlain) records += record("size", std::to_string(written.size));
  std::string out;
  if (!records.empty()) {
    TarEntry extended;
    extended.path = "pax-header";
    extended.mode = 0600;
    extended.size = records.size();
    out = block_of(extended, 'x') + records;
    out.append((kTarBlock - records.size() % kTarBlock) % kTarBlock, '\0');
  }
  return out + block_of(written, directory ? '5' : '0');
}

std::optional<TarEntry> read_tar_header(std::string_view block) {
  Header header{};
  if (block.size() != sizeof header) return std::nullopt;
  std::memcpy(&header, block.data(), sizeof header);
  const auto sum = number_of(header.sum), size = number_of(header.size),
             mode = number_of(header.mode);
  if (!sum || !size || !mode || *sum != sum_of(header)) return std::nullopt;
  TarEntry entry;
  entry.kind = kind_of(header.kind);
  entry.path = text_of(header.name);
  // Only in POSIX's own form; GNU's has other things there.
  const bool posix = std::memcmp(header.magic, "ustar\0", 6) == 0;
  if (posix && header.prefix[0] != '\0') entry.path = text_of(header.prefix) + "/" + entry.path;
  entry.mode = static_cast<mode_t>(*mode & 07777);
  entry.size = *size;
  entry.modified = static_cast<std::int64_t>(number_of(header.modified).value_or(0));
  return entry;
}

std::optional<TarRecords> read_tar_records(std::string_view text) {
  TarRecords records;
  while (!text.empty()) {
    const std::size_t blank = text.find(' ');
    const auto length = policy::parse_decimal(text.substr(0, std::min(blank, text.size())));
    if (blank == std::string_view::npos || !length || *length <= blank + 1 ||
        *length > text.size() || text[*length - 1] != '\n')
      return std::nullopt;
    const std::string_view pair = text.substr(blank + 1, *length - blank - 2);
    text.remove_prefix(*length);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = pair.substr(0, equals), value = pair.substr(equals + 1);
    if (key == "path") records.path = value;
    if (key == "size") records.size = policy::parse_decimal(value);
    if (key == "size" && !records.size) return std::nullopt;
    records.strange |= key.starts_with("GNU.sparse");
  }
  return records;
}

}  // namespace belljar::service
