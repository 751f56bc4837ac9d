#include "launcher/network/netlink.hpp"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace belljar::network {
namespace {

constexpr std::size_t aligned(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

Bytes bytes_of(const void* value, std::size_t size) {
  return {static_cast<const std::byte*>(value), size};
}

}  // namespace

void Requests::append(Bytes value) {
  bytes_.insert(bytes_.end(), value.begin(), value.end());
  bytes_.resize(aligned(bytes_.size()));
}

void Requests::note_length() {
  const auto length = static_cast<std::uint32_t>(bytes_.size() - begun_);
  std::memcpy(bytes_.data() + begun_ + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
}

void Requests::begin_raw(int type, unsigned flags, Bytes header) {
  begun_ = bytes_.size();
  nlmsghdr head{};
  head.nlmsg_type = static_cast<std::uint16_t>(type);
  head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  head.nlmsg_seq = ++count_;
  append(bytes_of(&head, sizeof head));
  append(header);
  attributes_ = bytes_.size();
  note_length();
}

void Requests::put(int type, Bytes value) {
  nlattr head{};
  head.nla_type = static_cast<std::uint16_t>(type);
  head.nla_len = static_cast<std::uint16_t>(sizeof head + value.size());
  append(bytes_of(&head, sizeof head));
  append(value);
  note_length();
}

void Requests::put_text(int type, std::string_view text) {
  std::vector<std::byte> value(text.size() + 1);
  std::memcpy(value.data(), text.data(), text.size());
  put(type, value);
}

void Requests::put_byte(int type, std::uint8_t value) { put(type, bytes_of(&value, 1)); }

void Requests::put_big(int type, std::uint32_t value) {
  const std::uint32_t big = htonl(value);
  put(type, bytes_of(&big, sizeof big));
}

std::size_t Requests::open_nest(int type) {
  const std::size_t at = bytes_.size();
  put(type | NLA_F_NESTED, {});
  return at;
}

void Requests::close_nest(std::size_t at) {
  const auto length = static_cast<std::uint16_t>(bytes_.size() - at);
  std::memcpy(bytes_.data() + at + offsetof(nlattr, nla_len), &length, sizeof length);
}

std::uint32_t Attribute::number() const {
  std::uint32_t number = 0;
  if (value.size() >= sizeof number) std::memcpy(&number, value.data(), sizeof number);
  return number;
}

std::uint32_t Attribute::big() const { return ntohl(number()); }

namespace {

/// As attributes(), with the flags that their types carry.
std::vector<Attribute> with_flags(Bytes bytes) {
  std::vector<Attribute> found;
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr head{};
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > bytes.size()) break;
    found.push_back({head.nla_type, bytes.subspan(sizeof head, head.nla_len - sizeof head)});
    bytes = bytes.subspan(std::min(aligned(head.nla_len), bytes.size()));
  }
  return found;
}

}  // namespace

std::vector<Attribute> attributes(Bytes bytes) {
  std::vector<Attribute> found = with_flags(bytes);
  for (Attribute& one : found) one.type &= NLA_TYPE_MASK;
  return found;
}

Bytes find(Bytes bytes, int type) {
  for (const Attribute& one : attributes(bytes))
    if (one.type == type) return one.value;
  return {};
}

namespace {

bool says_one(const Attribute& sent, Bytes found) {
  return (sent.type & NLA_F_NESTED) != 0 ? says_all(sent.value, found)
                                         : std::ranges::equal(sent.value, found);
}

bool says_list(const std::vector<Attribute>& sent, const std::vector<Attribute>& found) {
  return std::ranges::equal(sent, found, [](const Attribute& one, const Attribute& other) {
    return other.type == kListElement && says_one(one, other.value);
  });
}

}  // namespace

bool says_all(Bytes sent, Bytes found) {
  const std::vector<Attribute> wanted = with_flags(sent);
  const std::vector<Attribute> there = attributes(found);
  const bool list = !wanted.empty() && std::ranges::all_of(wanted, [](const Attribute& one) {
    return one.type == (kListElement | NLA_F_NESTED);
  });
  if (list) return says_list(wanted, there);
  return std::ranges::all_of(wanted, [&there](const Attribute& one) {
    const auto same = std::ranges::find(there, one.type & NLA_TYPE_MASK, &Attribute::type);
    return same != there.end() && says_one(one, same->value);
  });
}

Result<Socket> Socket::open(int protocol, std::uint32_t groups) {
  sys::UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  // The kernel answers at once; one that does not must hold up no launch.
  const timeval patience{5, 0};
  if (!fd.valid() ||
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return sys_failure(errno, "open a netlink socket");
  return Socket(std::move(fd));
}

Status Socket::send(const Requests& requests) const {
  const Bytes all = requests.bytes();
  const ssize_t sent = ::send(fd_.get(), all.data(), all.size(), MSG_NOSIGNAL);
  if (sent < 0) return sys_failure(errno, "send to netlink");
  return {};
}

Result<std::vector<Answer>> Socket::receive() const {
  std::vector<std::byte> room(256 << 10);
  const ssize_t got = recv(fd_.get(), room.data(), room.size(), 0);
  if (got < 0) return sys_failure(errno, "receive from netlink");
  std::vector<Answer> answers;
  Bytes rest = Bytes(room).first(static_cast<std::size_t>(got));
  while (rest.size() >= sizeof(nlmsghdr)) {
    nlmsghdr head{};
    std::memcpy(&head, rest.data(), sizeof head);
    if (head.nlmsg_len < sizeof head || head.nlmsg_len > rest.size()) break;
    const Bytes payload = rest.subspan(sizeof head, head.nlmsg_len - sizeof head);
    Answer answer{head.nlmsg_type, {payload.begin(), payload.end()}};
    answers.push_back(std::move(answer));
    rest = rest.subspan(std::min(aligned(head.nlmsg_len), rest.size()));
  }
  return answers;
}

Status Socket::carry_out(const Requests& requests, std::uint32_t last) const {
  BELLJAR_CHECK(send(requests));
  int error = 0;
  for (;;) {
    for (const Answer& answer : BELLJAR_TRY(receive())) {
      if (answer.type != NLMSG_ERROR) continue;
      const auto result = answer.header<nlmsgerr>();
      if (error == 0) error = -result.error;
      // A batch that is not a batch to the kernel is answered by its first message alone.
      if (result.msg.nlmsg_seq != last && !(result.error != 0 && result.msg.nlmsg_seq <= 1))
        continue;
      if (error != 0) return sys_failure(error, "netlink refused a request");
      return {};
    }
  }
}

Result<std::vector<Answer>> Socket::dump(const Requests& request) const {
  BELLJAR_CHECK(send(request));
  std::vector<Answer> all;
  for (;;) {
    for (Answer& answer : BELLJAR_TRY(receive())) {
      if (answer.type == NLMSG_DONE) return all;
      if (answer.type == NLMSG_ERROR)
        return sys_failure(-answer.header<nlmsgerr>().error, "netlink refused a dump");
      all.push_back(std::move(answer));
    }
  }
}

bool Socket::drain() const {
  bool any = false;
  std::vector<std::byte> room(64 << 10);
  for (;;) {
    const ssize_t got = recv(fd_.get(), room.data(), room.size(), MSG_DONTWAIT);
    // ENOBUFS: so much has come that some of it is lost.
    if (got < 0 && errno != ENOBUFS) return any;
    any = true;
  }
}

}  // namespace belljar::network
