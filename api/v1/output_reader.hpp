// Reading what a process writes, both streams side by side: what `output` and `attach` are made of.
#pragma once

#include <array>
#include <memory>

#include "api/v1/media.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

enum class OutputStream { kOut, kErr };
[[nodiscard]] inline const char* stream_name(OutputStream stream) {
  return stream == OutputStream::kOut ? "stdout" : "stderr";
}

/// One reader's place in both journals of a process. Where both are one, there is only stdout. Who
/// reads slowly holds up nobody: he meets a gap.
class OutputReader {
 public:
  struct Wanted {
    bool out = true, err = true;
  };
  struct Next {
    OutputStream stream = OutputStream::kOut;
    supervisor::Piece piece;  ///< kEnd: all of every wanted stream has been read.
  };

  OutputReader(const supervisor::asio::any_io_executor& executor,
               std::shared_ptr<supervisor::Supervisor> supervisor,
               std::shared_ptr<supervisor::Process> process, Offsets from, Wanted wanted);
  ~OutputReader();
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;

  /// What comes next, of the streams in turn, at most `max` bytes; moves past it.
  [[nodiscard]] Next next(std::size_t max);
  /// Until `next` gives something else than kNothing, at most `limit`; whether it does.
  [[nodiscard]] supervisor::Awaitable<bool> wait(supervisor::Milliseconds limit);
  [[nodiscard]] Offsets offsets() const { return {at_[0], at_[1]}; }

 private:
  struct Watch;
  [[nodiscard]] bool something() const;
  static supervisor::Awaitable<void> watch(std::shared_ptr<Watch> shared,
                                           std::shared_ptr<supervisor::Journal> journal);

  std::shared_ptr<supervisor::Supervisor> supervisor_;
  std::shared_ptr<supervisor::Process> process_;
  std::array<std::shared_ptr<supervisor::Journal>, 2> journals_;  ///< Null: not wanted.
  std::array<std::uint64_t, 2> at_;
  std::size_t turn_ = 0;
  std::shared_ptr<Watch> watch_;
};

}  // namespace belljar::api
