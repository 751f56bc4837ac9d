#include "launcher/service/channel.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace belljar::service {
namespace {

constexpr std::size_t kMostPassed = 253;  // SCM_MAX_FD: more than that no message carries.

void take_descriptors(msghdr& header, Received& received) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
}

}  // namespace

Received receive(int socket, std::size_t room) {
  Received received;
  received.text.resize(room);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> control;
  iovec piece{received.text.data(), received.text.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = -1;
  do got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
  received.kind = Received::Kind::kEnd;
  if (got < 0) return received;
  take_descriptors(header, received);
  received.text.resize(static_cast<std::size_t>(got));
  received.lost_descriptors = (header.msg_flags & MSG_CTRUNC) != 0;
  // A message without a byte looks like the end, and is none that the protocol has.
  if (got > 0) received.kind = Received::Kind::kMessage;
  if ((header.msg_flags & MSG_TRUNC) != 0) received.kind = Received::Kind::kTooLarge;
  return received;
}

int send_message(int socket, std::string_view text, std::span<const int> descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> control{};
  iovec piece{const_cast<char*>(text.data()), text.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = -1;
  do sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

}  // namespace belljar::service
