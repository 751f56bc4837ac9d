// Files for a test.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace belljar::policy::testing {

/// A directory that goes away with its files.
class TemporaryDirectory {
 public:
  TemporaryDirectory() { REQUIRE(mkdtemp(path_) != nullptr); }
  ~TemporaryDirectory() {
    for (const std::string& file : files_) (void)unlink(file.c_str());
    (void)rmdir(path_);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] std::string path() const { return path_; }
  std::string write(const std::string& name, std::string_view text) {
    files_.push_back(path() + "/" + name);
    std::FILE* file = std::fopen(files_.back().c_str(), "w");
    REQUIRE(file != nullptr);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
    return files_.back();
  }

 private:
  char path_[32] = "/tmp/belljar-policy-XXXXXX";
  std::vector<std::string> files_;
};

}  // namespace belljar::policy::testing
