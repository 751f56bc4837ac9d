#include "launcher/service/fresh_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace belljar::service {

FreshFile::FreshFile(int directory, mode_t mode) : directory_(directory) {
  for (int tries = 0; tries < 100 && !file_.valid(); ++tries) {
    name_ = ".belljar-write-" + std::to_string(getpid()) + "-" + std::to_string(tries);
    file_ = sys::UniqueFd(openat(directory, name_.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_.valid() && errno != EEXIST) break;
  }
  error_ = file_.valid() ? 0 : errno;
  if (file_.valid() && fchmod(file_.get(), mode) != 0) error_ = errno;
}

FreshFile::~FreshFile() {
  if (file_.valid() && !named_) unlinkat(directory_, name_.c_str(), 0);
}

int FreshFile::take_name(const std::string& name) {
  named_ = renameat(directory_, name_.c_str(), directory_, name.c_str()) == 0;
  return named_ ? 0 : errno;
}

}  // namespace belljar::service
