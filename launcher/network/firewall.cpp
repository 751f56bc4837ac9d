#include "launcher/network/firewall.hpp"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace belljar::network {
namespace {

constexpr const char* kTable = "belljar";
constexpr const char* kChain = "out";
/// Where what is refused goes: TCP is reset, since what ICMP says is not heard by a socket that is
/// just connecting; the rest hears ICMP, or of its packet at once.
constexpr const char* kRefusals = "refuse";
/// Of the rules that every list begins with: the namespace's own addresses, and IPv6.
constexpr std::size_t kNoRuleOfOurs = ~std::size_t{0};

int table_message(int message) { return NFNL_SUBSYS_NFTABLES << 8 | message; }

nfgenmsg family(int value, std::uint16_t resource = 0) {
  return {static_cast<std::uint8_t>(value), NFNETLINK_V0, htons(resource)};
}

/// Requests that the kernel takes all of or none.
class Batch {
 public:
  Batch() { requests_.begin(NFNL_MSG_BATCH_BEGIN, 0, family(AF_UNSPEC, NFNL_SUBSYS_NFTABLES)); }

  Requests& add(int message, unsigned flags) {
    requests_.begin(table_message(message), flags, family(NFPROTO_INET));
    return requests_;
  }

  /// The last one added asks for an answer.
  Status commit(const Socket& socket) {
    const std::uint32_t last = requests_.count();
    requests_.begin(NFNL_MSG_BATCH_END, 0, family(AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
    return socket.carry_out(requests_, last);
  }

 private:
  Requests requests_;
};

/// The expressions of one rule of the kernel's.
class Expressions {
 public:
  explicit Expressions(Requests& out) : out_(out) {}

  void load_meta(int key) {
    add("meta", [&] {
      out_.put_big(NFTA_META_DREG, NFT_REG_1);
      out_.put_big(NFTA_META_KEY, static_cast<std::uint32_t>(key));
    });
  }

  void load_payload(int base, std::uint32_t offset, std::uint32_t length) {
    add("payload", [&] {
      out_.put_big(NFTA_PAYLOAD_DREG, NFT_REG_1);
      out_.put_big(NFTA_PAYLOAD_BASE, static_cast<std::uint32_t>(base));
      out_.put_big(NFTA_PAYLOAD_OFFSET, offset);
      out_.put_big(NFTA_PAYLOAD_LEN, length);
    });
  }

  void mask(std::uint32_t mask) {
    add("bitwise", [&] {
      out_.put_big(NFTA_BITWISE_SREG, NFT_REG_1);
      out_.put_big(NFTA_BITWISE_DREG, NFT_REG_1);
      out_.put_big(NFTA_BITWISE_LEN, sizeof mask);
      out_.nest(NFTA_BITWISE_MASK, [&] { out_.put_big(NFTA_DATA_VALUE, mask); });
      out_.nest(NFTA_BITWISE_XOR, [&] { out_.put_big(NFTA_DATA_VALUE, 0); });
    });
  }

  void compare(nft_cmp_ops how, Bytes with) {
    add("cmp", [&] {
      out_.put_big(NFTA_CMP_SREG, NFT_REG_1);
      out_.put_big(NFTA_CMP_OP, how);
      out_.nest(NFTA_CMP_DATA, [&] { out_.put(NFTA_DATA_VALUE, with); });
    });
  }

  template <class T>
  void compare(nft_cmp_ops how, const T& with) {
    compare(how, Bytes{reinterpret_cast<const std::byte*>(&with), sizeof with});
  }

  void count() {
    out_.nest(NFTA_LIST_ELEM, [&] { out_.put_text(NFTA_EXPR_NAME, "counter"); });
  }

  void accept() {
    verdict([&] { out_.put_big(NFTA_VERDICT_CODE, NF_ACCEPT); });
  }

  void refuse() {
    verdict([&] {
      out_.put_big(NFTA_VERDICT_CODE, static_cast<std::uint32_t>(NFT_GOTO));
      out_.put_text(NFTA_VERDICT_CHAIN, kRefusals);
    });
  }

  void answer_with_reset() {
    add("reject", [&] { out_.put_big(NFTA_REJECT_TYPE, NFT_REJECT_TCP_RST); });
  }

  void answer_with_icmp() {
    add("reject", [&] {
      out_.put_big(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
      out_.put_byte(NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
    });
  }

 private:
  template <class Fill>
  void verdict(Fill fill) {
    add("immediate", [&] {
      out_.put_big(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
      out_.nest(NFTA_IMMEDIATE_DATA, [&] { out_.nest(NFTA_DATA_VERDICT, fill); });
    });
  }

  template <class Fill>
  void add(const char* name, Fill fill) {
    out_.nest(NFTA_LIST_ELEM, [&] {
      out_.put_text(NFTA_EXPR_NAME, name);
      out_.nest(NFTA_EXPR_DATA, fill);
    });
  }

  Requests& out_;
};

void match_destination(Expressions& rule, const policy::Ipv4Range& to) {
  if (to.length == 0) return;
  constexpr std::uint32_t kDestination = 16;  // RFC 791, 3.1
  rule.load_payload(NFT_PAYLOAD_NETWORK_HEADER, kDestination, sizeof(std::uint32_t));
  if (to.length < 32) rule.mask(to.mask());
  rule.compare(NFT_CMP_EQ, htonl(to.address));
}

void match_port(Expressions& rule, std::uint8_t protocol, std::uint16_t port) {
  constexpr std::uint32_t kDestinationPort = 2;  // Of TCP and UDP alike.
  rule.load_meta(NFT_META_L4PROTO);
  rule.compare(NFT_CMP_EQ, protocol);
  rule.load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, kDestinationPort, sizeof port);
  rule.compare(NFT_CMP_EQ, htons(port));
}

/// What every list begins with: the namespace's own addresses are reached, and IPv6 nowhere else.
void pass_own(Expressions& rule) {
  constexpr std::array<char, 16> kLoopback = {'l', 'o'};  // IFNAMSIZ
  rule.load_meta(NFT_META_OIFNAME);
  rule.compare(NFT_CMP_EQ, kLoopback);
  rule.accept();
}

void refuse_all_but_ipv4(Expressions& rule) {
  constexpr std::uint8_t kIpv4 = NFPROTO_IPV4;
  rule.load_meta(NFT_META_NFPROTO);
  rule.compare(NFT_CMP_NEQ, kIpv4);
  rule.count();
  rule.refuse();
}

void end_rule(Expressions& rule, bool accept) {
  rule.count();
  if (accept)
    rule.accept();
  else
    rule.refuse();
}

std::vector<std::byte> copy_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

/// Adds a rule at the end of a chain; what was asked for.
template <class Fill>
std::vector<std::byte> add_rule(Batch& batch, const char* chain, bool last, Fill fill) {
  Requests& out = batch.add(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | (last ? NLM_F_ACK : 0U));
  out.put_text(NFTA_RULE_TABLE, kTable);
  out.put_text(NFTA_RULE_CHAIN, chain);
  out.nest(NFTA_RULE_EXPRESSIONS, [&] {
    Expressions rule(out);
    fill(rule);
  });
  return copy_of(out.last_attributes());
}

Error not_reported(const char* what) {
  return {ErrorKind::kRefused, EPROTO,
          std::string("the kernel does not report ") + what + " of the private network's rules",
          "network.mode", "please report it with the output of `belljar explain`"};
}

/// A refusal in words that name what a person can change.
Error explain(Error error, const char* what) {
  error.what = std::string(what) + ": " + error.what;
  error.where = "network.mode";
  if (error.sys_errno == ENOENT || error.sys_errno == EPROTONOSUPPORT ||
      error.sys_errno == EOPNOTSUPP || error.sys_errno == EAFNOSUPPORT)
    error.remedy =
        "the host's kernel needs nftables with reject (CONFIG_NF_TABLES_INET, "
        "CONFIG_NFT_REJECT_INET); as root: modprobe nf_tables nft_reject_inet";
  return error;
}

}  // namespace

Result<Firewall> Firewall::open() {
  Result<Socket> socket = Socket::open(NETLINK_NETFILTER);
  if (!socket) return fail(explain(socket.error(), "open nftables"));
  return Firewall(*std::move(socket));
}

Status Firewall::close() {
  Batch batch;
  batch.add(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL).put_text(NFTA_TABLE_NAME, kTable);
  for (const char* name : {kChain, kRefusals}) {
    Requests& chain = batch.add(NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL);
    chain.put_text(NFTA_CHAIN_TABLE, kTable);
    chain.put_text(NFTA_CHAIN_NAME, name);
    if (name == kChain) {
      chain.nest(NFTA_CHAIN_HOOK, [&] {
        chain.put_big(NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
        chain.put_big(NFTA_HOOK_PRIORITY, 0);
      });
      chain.put_big(NFTA_CHAIN_POLICY, NF_DROP);
      chain.put_text(NFTA_CHAIN_TYPE, "filter");
    }
    chains_.push_back(copy_of(chain.last_attributes()));
  }
  refusal_.push_back(add_rule(batch, kRefusals, false, [](Expressions& rule) {
    constexpr std::uint8_t kTcp = IPPROTO_TCP;
    rule.load_meta(NFT_META_L4PROTO);
    rule.compare(NFT_CMP_EQ, kTcp);
    rule.answer_with_reset();
  }));
  refusal_.push_back(
      add_rule(batch, kRefusals, true, [](Expressions& rule) { rule.answer_with_icmp(); }));
  if (Status made = batch.commit(socket_); !made)
    return fail(explain(made.error(), "make the private network's table of rules"));
  return check_chains();
}

Status Firewall::set(const std::vector<Rule>& rules) {
  Batch batch;
  Requests& flush = batch.add(NFT_MSG_DELRULE, 0);
  flush.put_text(NFTA_RULE_TABLE, kTable);
  flush.put_text(NFTA_RULE_CHAIN, kChain);
  sent_.clear();
  rule_of_.clear();
  count_ = rules.size();
  const auto add = [&](std::size_t which, bool last, auto fill) {
    sent_.push_back(add_rule(batch, kChain, last, fill));
    rule_of_.push_back(which);
  };
  add(kNoRuleOfOurs, false, pass_own);
  add(kNoRuleOfOurs, false, refuse_all_but_ipv4);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Rule& rule = rules[i];
    for (const std::uint16_t port : rule.ports)
      for (const auto protocol : {std::uint8_t{IPPROTO_TCP}, std::uint8_t{IPPROTO_UDP}})
        add(i, false, [&](Expressions& out) {
          match_destination(out, rule.to);
          match_port(out, protocol, port);
          end_rule(out, rule.accept);
        });
    if (rule.ports.empty())
      add(i, i + 1 == rules.size(), [&](Expressions& out) {
        match_destination(out, rule.to);
        end_rule(out, rule.accept);
      });
  }
  if (Status done = batch.commit(socket_); !done)
    return fail(explain(done.error(), "set the private network's rules"));
  return packets().map([](const auto&) {});
}

Result<std::vector<Answer>> Firewall::rules_in_force(const char* chain) const {
  Requests request;
  request.begin(table_message(NFT_MSG_GETRULE), NLM_F_DUMP, family(NFPROTO_INET));
  request.put_text(NFTA_RULE_TABLE, kTable);
  request.put_text(NFTA_RULE_CHAIN, chain);
  Result<std::vector<Answer>> found = socket_.dump(request);
  if (!found) return fail(explain(found.error(), "read the private network's rules back"));
  return found;
}

namespace {

bool say_all(const std::vector<std::vector<std::byte>>& sent, const std::vector<Answer>& found) {
  return std::ranges::equal(sent, found, [](const auto& one, const Answer& answer) {
    return says_all(one, answer.attributes(sizeof(nfgenmsg)));
  });
}

/// How many packets the rule has met.
std::uint64_t packets_of(const Answer& rule) {
  constexpr char kCounter[] = "counter";
  const Bytes list = find(rule.attributes(sizeof(nfgenmsg)), NFTA_RULE_EXPRESSIONS);
  for (const Attribute& one : attributes(list)) {
    const Bytes name = find(one.value, NFTA_EXPR_NAME);
    const Bytes count = find(find(one.value, NFTA_EXPR_DATA), NFTA_COUNTER_PACKETS);
    if (count.size() == sizeof(std::uint64_t) && name.size() == sizeof kCounter &&
        std::memcmp(name.data(), kCounter, sizeof kCounter) == 0)
      return static_cast<std::uint64_t>(Attribute{0, count}.big()) << 32 |
             Attribute{0, count.subspan(4)}.big();
  }
  return 0;
}

}  // namespace

Status Firewall::check_chains() const {
  Requests request;
  request.begin(table_message(NFT_MSG_GETCHAIN), NLM_F_DUMP, family(NFPROTO_INET));
  Result<std::vector<Answer>> found = socket_.dump(request);
  if (!found) return fail(explain(found.error(), "read the private network's chains back"));
  if (!say_all(chains_, *found)) return fail(not_reported("the chains"));
  return {};
}

Result<std::vector<std::uint64_t>> Firewall::packets() const {
  const std::vector<Answer> refusals = BELLJAR_TRY(rules_in_force(kRefusals));
  const std::vector<Answer> found = BELLJAR_TRY(rules_in_force(kChain));
  if (!say_all(refusal_, refusals) || !say_all(sent_, found)) return fail(not_reported("all"));
  std::vector<std::uint64_t> packets(count_);
  for (std::size_t i = 0; i < found.size(); ++i)
    if (rule_of_[i] != kNoRuleOfOurs) packets[rule_of_[i]] += packets_of(found[i]);
  return packets;
}

}  // namespace belljar::network
