// What a process writes, read over HTTP: each byte once, however often the connection breaks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ctl/client.hpp"

namespace belljar::ctl {

enum class Stream { kOut, kErr };
[[nodiscard]] std::string_view stream_name(Stream stream);

struct Offsets {
  std::uint64_t out = 0, err = 0;
};

/// Lines of a stream of JSON, put together from pieces.
class LineReader {
 public:
  /// False: a line is longer than any of the daemon's.
  [[nodiscard]] bool feed(std::string_view bytes, const std::function<bool(std::string_view)>& line,
                          bool& stopped);

 private:
  std::string begun_;
};

/// What the lines of `output` come to: bytes in order, each once. Offsets decide, not the order of
/// arrival, so that what a second connection repeats is not written again.
class OutputLines {
 public:
  struct Taker {
    std::function<bool(Stream, std::string_view)> bytes;  ///< False: that is enough.
    std::function<void(Stream, std::uint64_t from, std::uint64_t to)> gap;
  };
  OutputLines(Offsets from, Taker taker) : at_(from), taker_(std::move(taker)) {}

  /// False: that is enough, or the line is none of the daemon's (`broken`).
  [[nodiscard]] bool take(std::string_view line);
  [[nodiscard]] Offsets at() const { return at_; }
  /// From the last line of all.
  [[nodiscard]] const std::optional<Json>& record() const { return record_; }
  [[nodiscard]] const std::string& broken() const { return broken_; }

 private:
  bool take_output(const Json& line);
  bool take_gap(const Json& line);
  bool wrong(std::string why);
  [[nodiscard]] std::uint64_t& at(Stream stream) {
    return stream == Stream::kOut ? at_.out : at_.err;
  }

  Offsets at_;
  Taker taker_;
  std::optional<Json> record_;
  std::string broken_;
};

struct Following {
  std::string session, process;
  std::optional<Stream> only;
  Offsets from;
  bool follow = true;
  std::vector<Watch> watches;
  OutputLines::Taker taker;
};

/// The record at the process's end; without `follow`, or when it was stopped, perhaps nothing. A
/// connection that breaks is made again from the offsets, for up to a minute, which is said.
[[nodiscard]] Outcome<std::optional<Json>> follow_output(const Client& client,
                                                         const Following& wanted);

/// Says on standard error what is missing.
void say_gap(Stream stream, std::uint64_t from, std::uint64_t to);

}  // namespace belljar::ctl
