// A file that takes its name when all of it is there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// No file that is written is larger.
inline constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

/// A new file in a directory, gone again unless it takes a name there.
class FreshFile {
 public:
  FreshFile(int directory, mode_t mode);
  FreshFile(const FreshFile&) = delete;
  FreshFile& operator=(const FreshFile&) = delete;
  ~FreshFile();

  /// Why it could not be made; 0: it is.
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] int fd() const { return file_.get(); }

  /// Replaces what has that name: 0 or the errno.
  [[nodiscard]] int take_name(const std::string& name);

 private:
  int directory_;
  std::string name_;
  sys::UniqueFd file_;
  int error_ = 0;
  bool named_ = false;
};

}  // namespace belljar::service
