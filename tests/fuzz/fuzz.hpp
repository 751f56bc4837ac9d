// What the fuzz targets share: input as numbers, and checks that end the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// Aborts, which libFuzzer and the replay both report with the input that did it.
#define FUZZ_CHECK(condition, ...)                                                          \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::fprintf(stderr, "%s:%d: does not hold: %s %s\n", __FILE__, __LINE__, #condition, \
                   std::string(__VA_ARGS__).c_str());                                       \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace belljar::fuzz {

/// Takes numbers from an input; zeros when it is used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  [[nodiscard]] bool empty() const { return at_ >= size_; }

  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }

  template <class T>
  T number() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::uint64_t{byte()} << (8 * i);
    return static_cast<T>(value);
  }

  /// 0 to `below` - 1.
  std::size_t pick(std::size_t below) { return byte() % below; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace belljar::fuzz
