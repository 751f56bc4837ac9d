// Netlink without a library: the few messages that a private network takes, and their answers.
// (Debian's libnftables is not static, libmnl and libnftnl would be two dependencies for what is a
// page here.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::network {

using Bytes = std::span<const std::byte>;

/// Requests, one after another, as they are sent.
class Requests {
 public:
  /// Begins a request; `header` is what comes before the attributes.
  template <class Header>
  void begin(int type, unsigned flags, const Header& header) {
    begin_raw(type, flags, {reinterpret_cast<const std::byte*>(&header), sizeof header});
  }
  void put(int type, Bytes value);
  void put_text(int type, std::string_view text);
  void put_byte(int type, std::uint8_t value);
  void put_big(int type, std::uint32_t value);  ///< In network order.

  /// An attribute that holds those that `fill` puts.
  template <class Fill>
  void nest(int type, Fill fill) {
    const std::size_t at = open_nest(type);
    fill();
    close_nest(at);
  }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  /// What was put into the last request after its header.
  [[nodiscard]] Bytes last_attributes() const { return Bytes(bytes_).subspan(attributes_); }

 private:
  void begin_raw(int type, unsigned flags, Bytes header);
  std::size_t open_nest(int type);
  void close_nest(std::size_t at);
  void append(Bytes value);
  void note_length();

  std::vector<std::byte> bytes_;
  std::size_t begun_ = 0;       ///< Where the last request begins,
  std::size_t attributes_ = 0;  ///< and its attributes.
  std::uint32_t count_ = 0;
};

/// One attribute of an answer.
struct Attribute {
  int type = 0;
  Bytes value;

  [[nodiscard]] std::uint32_t number() const;  ///< As the kernel's own 32 bits; 0 when it is none.
  [[nodiscard]] std::uint32_t big() const;     ///< From network order.
};

[[nodiscard]] std::vector<Attribute> attributes(Bytes bytes);
/// The first of that type; empty when there is none.
[[nodiscard]] Bytes find(Bytes attributes, int type);

/// Whether `found` says all that `sent` says, in attributes that may hold others: what the kernel
/// adds of its own is not compared. Elements of lists (type `kListElement`) come in order, and are
/// as many.
[[nodiscard]] bool says_all(Bytes sent, Bytes found);
inline constexpr int kListElement = 1;

/// A message of the kernel's.
struct Answer {
  int type = 0;
  std::vector<std::byte> payload;  ///< Behind the netlink header.

  template <class Header>
  [[nodiscard]] Header header() const {
    Header header{};
    if (payload.size() >= sizeof header)
      std::copy_n(payload.data(), sizeof header, reinterpret_cast<std::byte*>(&header));
    return header;
  }
  /// Behind a header of that size.
  [[nodiscard]] Bytes attributes(std::size_t header) const {
    const std::size_t from = std::min((header + 3) & ~std::size_t{3}, payload.size());
    return Bytes(payload).subspan(from);
  }
};

class Socket {
 public:
  /// In the network namespace of the caller, where it stays. `groups` are those of bind(2).
  [[nodiscard]] static Result<Socket> open(int protocol, std::uint32_t groups = 0);

  /// Sends requests of which the one with number `last` (from 1) asks for an answer. The first
  /// error of any of them is the result.
  [[nodiscard]] Status carry_out(const Requests& requests, std::uint32_t last) const;

  /// All that one request for a dump gives.
  [[nodiscard]] Result<std::vector<Answer>> dump(const Requests& request) const;

  /// Throws away what has come unasked. True when anything had, or was lost.
  [[nodiscard]] bool drain() const;

  [[nodiscard]] int descriptor() const { return fd_.get(); }

 private:
  explicit Socket(sys::UniqueFd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] Status send(const Requests& requests) const;
  [[nodiscard]] Result<std::vector<Answer>> receive() const;

  sys::UniqueFd fd_;
};

}  // namespace belljar::network
