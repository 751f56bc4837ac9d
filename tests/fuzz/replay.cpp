// Feeds a target with kept inputs, without libFuzzer: `replay FILE|DIRECTORY...`. Closes with
// `N passed, 0 failed`; an input that breaks the target ends it, and its name has been said before.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.hpp"

namespace {

std::vector<std::filesystem::path> files_of(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (std::filesystem::is_regular_file(argv[i])) files.emplace_back(argv[i]);
    if (!std::filesystem::is_directory(argv[i])) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i]))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::uint8_t> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  int passed = 0;
  for (const std::filesystem::path& path : files_of(argc, argv)) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    const std::vector<std::uint8_t> input = bytes_of(path);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++passed;
  }
  std::printf("%d passed, 0 failed\n", passed);
  // Nothing at all is a failure too: a wrong directory proves nothing.
  return passed == 0 ? 1 : 0;
}
