// pasta, which carries what leaves a network namespace through sockets of its own outside.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::network {

/// Where pasta is. BELLJAR_PASTA names another one: for tests, and for one that is installed
/// elsewhere.
[[nodiscard]] Result<std::string> find_pasta();

/// The options that are used of pasta and that its own help does not name: those of one that is
/// older than March 2023 (Debian 12).
[[nodiscard]] std::vector<std::string> options_lacking(const std::string& program);

/// A running pasta, as a child of the caller's that dies with it. The caller has no other children,
/// and becomes the reaper of whatever pasta leaves.
class Pasta {
 public:
  Pasta() = default;
  Pasta(const Pasta&) = delete;
  Pasta& operator=(const Pasta&) = delete;
  ~Pasta() { end(); }

  /// Attaches the namespaces that the descriptors are of, from the caller's network and with the
  /// caller's ids. No port is forwarded in either direction, and no address leads to the host's
  /// loopback; IPv4 only. Only options that pasta has had since March 2023 (Debian 12) are used, so
  /// that there is none to be tried out.
  [[nodiscard]] Status start(int user, int net);

  /// Readable when it has ended.
  [[nodiscard]] int handle() const { return handle_.get(); }
  /// What it says, to be read with take_words().
  [[nodiscard]] int words() const { return words_.get(); }
  void take_words();

  /// "exited with status 1: No external routable interface for IPv4". Only when it has ended.
  [[nodiscard]] std::string how_it_ended();
  /// What it has said, in one line.
  [[nodiscard]] std::string said() const;

  /// It and all that it has made are gone when this returns.
  void end();

 private:
  sys::UniqueFd handle_;
  sys::UniqueFd words_;
  pid_t pid_ = 0;
  std::string said_;
};

}  // namespace belljar::network
