#include "policy/forms.hpp"

#include <algorithm>
#include <limits>

#include "policy/ipv4.hpp"
#include "policy/names.hpp"
#include "policy/quote.hpp"
#include "policy/suggest.hpp"
#include "policy/units.hpp"

namespace belljar::policy {
namespace {

constexpr std::uint64_t kLargestId = 4294967294;  // (uid_t)-1 means "unchanged" to the kernel.

bool is_string(const Node& node) { return node.kind == Node::Kind::kString; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool read_number(Reader& reader, const Node& node, std::uint64_t least, std::uint64_t most,
                 std::uint64_t& out) {
  if (node.kind != Node::Kind::kUnsigned || node.number < least || node.number > most) {
    return reader.expected(
        node, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  out = node.number;
  return true;
}

bool read_size(Reader& reader, const Node& node, std::uint64_t& out) {
  constexpr std::string_view kWhat = "a size such as \"512MiB\"";
  if (node.kind == Node::Kind::kUnsigned) {
    return reader.error(node.place, "expected " + std::string(kWhat) + ", got " + found_text(node) +
                                        "; write \"" + std::to_string(node.number) +
                                        "B\" if bytes are meant");
  }
  if (!is_string(node)) return reader.expected(node, kWhat);
  const Parsed<std::uint64_t> size = parse_size(node.text);
  if (!size) return reader.error(node.place, size.error());
  out = *size;
  return true;
}

bool read_duration(Reader& reader, const Node& node, std::chrono::milliseconds& out) {
  constexpr std::string_view kWhat = "a duration such as \"30s\"";
  if (node.kind == Node::Kind::kUnsigned) {
    return reader.error(node.place, "expected " + std::string(kWhat) + ", got " + found_text(node) +
                                        "; write \"" + std::to_string(node.number) +
                                        "s\" if seconds are meant");
  }
  if (!is_string(node)) return reader.expected(node, kWhat);
  const Parsed<std::chrono::milliseconds> duration = parse_duration(node.text);
  if (!duration) return reader.error(node.place, duration.error());
  out = *duration;
  return true;
}

bool read_octal(Reader& reader, const Node& node, std::string_view example, std::string_view most,
                std::uint32_t& out) {
  const std::uint32_t limit = parse_octal(most, 07777).value_or(0);
  const std::optional<std::uint32_t> number =
      is_string(node) ? parse_octal(node.text, limit) : std::nullopt;
  if (!number) {
    return reader.expected(node, "a string of octal digits such as " + in_quotes(example) +
                                     ", at most " + in_quotes(most));
  }
  out = *number;
  return true;
}

bool read_path(Reader& reader, const Node& node, std::string_view what, std::string& out) {
  if (!is_string(node)) return reader.expected(node, what);
  const Parsed<std::string> path = normalise_path(node.text);
  if (!path) return reader.error(node.place, path.error());
  out = *path;
  return true;
}

std::optional<std::string> check_path_key(Reader& reader, const Place& place,
                                          std::string_view key) {
  Parsed<std::string> path = normalise_path(key);
  if (path) return std::move(*path);
  reader.error(place, path.error());
  return std::nullopt;
}

}  // namespace

bool is_absolute_path(const Node& node) { return is_string(node) && node.text.starts_with('/'); }

bool read_absolute_path(Reader& reader, const Node& node, std::string& out) {
  return read_path(reader, node, "an absolute path", out);
}

bool refuse_choice(Reader& reader, const Node& node, std::span<const std::string_view> names,
                   std::string_view or_else) {
  std::string what = "expected ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) what += i + 1 == names.size() && or_else.empty() ? " or " : ", ";
    what += in_quotes(names[i]);
  }
  if (!or_else.empty()) what += " or " + std::string(or_else);
  what += ", got " + found_text(node);
  const std::string_view near = is_string(node) ? nearest(node.text, names) : std::string_view{};
  if (!near.empty()) what += "; did you mean " + in_quotes(near) + "?";
  return reader.error(node.place, what);
}

bool expected_shape(Reader& reader, const Node& node, std::string_view shape) {
  std::string what(shape);
  if (!reader.example().empty()) what += " such as " + std::string(reader.example());
  return reader.expected(node, what);
}

bool Text::read(Reader& reader, const Node& node, std::string& out) {
  if (!is_string(node)) return reader.expected(node, "a string");
  out = node.text;
  return true;
}

bool VariableText::read(Reader& reader, const Node& node, std::string& out) {
  if (node.kind == Node::Kind::kUnsigned) {
    out = std::to_string(node.number);
    return true;
  }
  if (!is_string(node)) return reader.expected(node, "a string or a whole number of at least 0");
  if (node.text.find("${") != std::string::npos) {
    return reader.error(node.place,
                        "a variable's value is not expanded, so \"${\" has no use in it");
  }
  out = node.text;
  return true;
}

bool Reason::read(Reader& reader, const Node& node, std::string& out) {
  if (!is_string(node)) return reader.expected(node, "a string that says why it is not shown");
  out = node.text;
  return true;
}

bool Boolean::read(Reader& reader, const Node& node, bool& out) {
  if (node.kind != Node::Kind::kBoolean) return reader.expected(node, "true or false");
  out = node.boolean;
  return true;
}

bool IdForm::read(Reader& reader, const Node& node, Id& out) {
  if (is_string(node) && node.text == "caller") {
    out = {Id::From::kCaller, 0};
    return true;
  }
  if (is_string(node) && node.text == "pool") {
    out = {Id::From::kPool, 0};
    return true;
  }
  if (node.kind != Node::Kind::kUnsigned || node.number > kLargestId) {
    return reader.expected(node, "\"caller\", \"pool\" or a whole number from 0 to 4294967294");
  }
  out = {Id::From::kNumber, static_cast<std::uint32_t>(node.number)};
  return true;
}

bool IdNumber::read(Reader& reader, const Node& node, std::uint32_t& out) {
  std::uint64_t number = 0;
  if (!read_number(reader, node, 0, kLargestId, number)) return false;
  out = static_cast<std::uint32_t>(number);
  return true;
}

bool IdCount::read(Reader& reader, const Node& node, std::uint64_t& out) {
  return read_number(reader, node, 1, kLargestId, out);
}

bool Hostname::read(Reader& reader, const Node& node, std::string& out) {
  const auto allowed = [](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-'; };
  if (!is_string(node) || node.text.empty() || node.text.size() > 64 ||
      !std::all_of(node.text.begin(), node.text.end(), allowed)) {
    return reader.expected(node, "a host name of 1 to 64 letters, digits, \".\" and \"-\"");
  }
  out = node.text;
  return true;
}

bool Umask::read(Reader& reader, const Node& node, std::uint32_t& out) {
  return read_octal(reader, node, "022", "0777", out);
}

bool FileMode::read(Reader& reader, const Node& node, std::uint32_t& out) {
  return read_octal(reader, node, "1777", "7777", out);
}

bool MountSize::read(Reader& reader, const Node& node, std::uint64_t& out) {
  if (!read_size(reader, node, out)) return false;
  if (out > 0) return true;
  return reader.error(node.place, "0 would mean \"no limit\" to the kernel; write a size above it");
}

bool InodeCount::read(Reader& reader, const Node& node, std::uint64_t& out) {
  return read_number(reader, node, 1, std::numeric_limits<std::int64_t>::max(), out);
}

bool read_size_above(Reader& reader, const Node& node, std::uint64_t least, std::uint64_t& out) {
  if (!read_size(reader, node, out)) return false;
  if (out >= least) return true;
  constexpr std::uint64_t kMiB = 1U << 20;
  const std::string text =
      least % kMiB == 0 ? std::to_string(least / kMiB) + "MiB" : std::to_string(least) + "B";
  return reader.error(node.place, "at least \"" + text +
                                      "\" is needed: 0 never means unlimited, and nothing could "
                                      "run with less; leave it out for no limit");
}

bool ProcessCount::read(Reader& reader, const Node& node, std::uint64_t& out) {
  return read_number(reader, node, 1, 4194304, out);  // The kernel's PID_MAX_LIMIT.
}

bool Processors::read(Reader& reader, const Node& node, std::uint64_t& out) {
  constexpr std::uint64_t kLeast = 10, kMost = 8'192'000;  // The kernel's least share: 1 in 100 ms.
  constexpr std::string_view kWhat =
      "a number of processors such as 2 or 0.5, from 0.01 to 8192, with at most three decimals";
  if (node.kind == Node::Kind::kUnsigned && node.number <= kMost / 1000) {
    out = node.number * 1000;
    return out >= kLeast || reader.expected(node, kWhat);
  }
  if (node.kind != Node::Kind::kFloat) return reader.expected(node, kWhat);
  const std::size_t point = node.text.find('.');
  if (point == std::string::npos) return reader.expected(node, kWhat);
  std::string digits = node.text.substr(point + 1);
  if (digits.size() > 3) return reader.expected(node, kWhat);
  digits.resize(3, '0');
  const std::optional<std::uint64_t> thousandths =
      parse_unsigned(node.text.substr(0, point) + digits);
  if (!thousandths || *thousandths < kLeast || *thousandths > kMost) {
    return reader.expected(node, kWhat);
  }
  out = *thousandths;
  return true;
}

bool TimeLimit::read(Reader& reader, const Node& node, std::chrono::milliseconds& out) {
  if (!read_duration(reader, node, out)) return false;
  if (out.count() > 0) return true;
  return reader.error(node.place, "0 never means unlimited; leave it out for no limit");
}

bool SignedDuration::read(Reader& reader, const Node& node, std::chrono::milliseconds& out) {
  if (!is_string(node)) return reader.expected(node, "a duration such as \"1h\" or \"-30s\"");
  const bool negative = node.text.starts_with('-');
  const Parsed<std::chrono::milliseconds> duration =
      parse_duration(std::string_view(node.text).substr(negative ? 1 : 0));
  if (!duration) return reader.error(node.place, duration.error());
  out = negative ? -*duration : *duration;
  return true;
}

bool MountSource::read(Reader& reader, const Node& node, std::string& out) {
  if (!is_string(node) || node.text.empty()) return reader.expected(node, "a path");
  out = node.text;
  return true;
}

bool HostPath::read(Reader& reader, const Node& node, std::string& out) {
  constexpr std::string_view kWhat = "an absolute path such as \"/work\"";
  if (is_string(node) && !node.text.starts_with('/')) return reader.expected(node, kWhat);
  return read_path(reader, node, kWhat, out);
}

bool LowerDirectories::read(Reader& reader, const Node& node, std::vector<std::string>& out) {
  if (!SetOf<HostPath>::read(reader, node, out)) return false;
  if (node.elements.empty()) return reader.error(node.place, "at least one directory is needed");
  if (node.elements.size() <= kMostLowerDirectories) return true;
  return reader.error(node.place, "at most " + std::to_string(kMostLowerDirectories) +
                                      " directories, got " + std::to_string(node.elements.size()));
}

bool WorkspacePath::read(Reader& reader, const Node& node, std::string& out) {
  constexpr std::string_view kWhat = "an absolute path such as \"/work\", or \".\"";
  if (is_string(node) && node.text == ".") {
    out = node.text;
    return true;
  }
  if (is_string(node) && !node.text.starts_with('/')) return reader.expected(node, kWhat);
  return read_path(reader, node, kWhat, out);
}

bool HomeForm::read(Reader& reader, const Node& node, Home& out) {
  constexpr std::array<Choice<HomeKind>, 3> kKinds{{{"none", HomeKind::kNone},
                                                    {"workspace", HomeKind::kWorkspace},
                                                    {"private", HomeKind::kPrivate}}};
  for (const Choice<HomeKind>& kind : kKinds) {
    if (is_string(node) && node.text == kind.name) {
      out = {kind.value, {}};
      return true;
    }
  }
  constexpr std::string_view kWhat = "\"none\", \"workspace\", \"private\" or an absolute path";
  if (!is_string(node) || !node.text.starts_with('/')) return reader.expected(node, kWhat);
  out.kind = HomeKind::kPath;
  return read_path(reader, node, kWhat, out.path);
}

bool CapabilityName::read(Reader& reader, const Node& node, std::string& out) {
  if (!is_string(node)) return reader.expected(node, "the name of a capability");
  std::string name = node.text;
  for (char& c : name) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  if (!name.starts_with("CAP_")) name.insert(0, "CAP_");
  if (find_name(capability_names(), name) == nullptr) {
    return reader.error(node.place, unknown_name("capability", name, capability_names()));
  }
  out = std::move(name);
  return true;
}

bool EnvironmentGlob::read(Reader& reader, const Node& node, std::string& out) {
  const auto allowed = [](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '*' || c == '?';
  };
  if (!is_string(node) || node.text.empty() ||
      !std::all_of(node.text.begin(), node.text.end(), allowed)) {
    return reader.expected(node,
                           "a name of letters, digits and \"_\", or a pattern with \"*\" or "
                           "\"?\"");
  }
  out = node.text;
  return true;
}

bool DescriptorNumber::read(Reader& reader, const Node& node, int& out) {
  std::uint64_t number = 0;
  if (!read_number(reader, node, 3, 1048575, number)) return false;
  out = static_cast<int>(number);
  return true;
}

bool PortNumber::read(Reader& reader, const Node& node, std::uint16_t& out) {
  std::uint64_t number = 0;
  if (!read_number(reader, node, 0, 65535, number)) return false;
  out = static_cast<std::uint16_t>(number);
  return true;
}

bool EgressPort::read(Reader& reader, const Node& node, std::uint16_t& out) {
  std::uint64_t number = 0;
  if (!read_number(reader, node, 1, 65535, number)) return false;
  out = static_cast<std::uint16_t>(number);
  return true;
}

bool AttemptForm::read(Reader& reader, const Node& node, std::string& out) {
  constexpr std::string_view kForms =
      "\"read /PATH\", \"write /PATH\", \"exec /PATH\" or \"connect ADDRESS:PORT\"";
  if (node.kind != Node::Kind::kString) return reader.expected(node, kForms);
  const std::size_t space = node.text.find(' ');
  const std::string verb = node.text.substr(0, space);
  const std::string operand = space == std::string::npos ? "" : node.text.substr(space + 1);
  const std::size_t colon = operand.rfind(':');
  const auto port = parse_unsigned(colon == std::string::npos ? "" : operand.substr(colon + 1));
  const bool address = verb == "connect" && colon > 0 && port && *port > 0 && *port <= 65535;
  const bool path =
      (verb == "read" || verb == "write" || verb == "exec") && normalise_path(operand).has_value();
  if (!address && !path) return reader.expected(node, kForms);
  out = node.text;
  return true;
}

bool ExitCode::read(Reader& reader, const Node& node, std::uint32_t& out) {
  std::uint64_t number = 0;
  if (!read_number(reader, node, 0, 255, number)) return false;
  out = static_cast<std::uint32_t>(number);
  return true;
}

bool CauseForm::read(Reader& reader, const Node& node, std::string& out) {
  const bool known = node.kind == Node::Kind::kString &&
                     std::find(kCauses.begin(), kCauses.end(), node.text) != kCauses.end();
  if (!known) return refuse_choice(reader, node, kCauses);
  out = node.text;
  return true;
}

bool ActionForm::read(Reader& reader, const Node& node, SyscallAction& out) {
  if (!is_string(node)) {
    return reader.expected(node, "\"allow\", \"log\", \"kill\" or an errno such as \"EPERM\"");
  }
  using Kind = SyscallAction::Kind;
  constexpr std::array<Choice<Kind>, 3> kWords{
      {{"allow", Kind::kAllow}, {"log", Kind::kLog}, {"kill", Kind::kKill}}};
  for (const Choice<Kind>& word : kWords) {
    if (node.text != word.name) continue;
    out.kind = word.value;
    return true;
  }
  const NamedNumber* known = find_name(errno_names(), node.text);
  if (known == nullptr) {
    const std::string_view near =
        nearest(node.text, std::array<std::string_view, 3>{"allow", "log", "kill"});
    if (!near.empty()) {
      return reader.error(node.place, "unknown action " + in_quotes(node.text) + "; did you mean " +
                                          in_quotes(near) + "?");
    }
    std::string message = unknown_name("action", node.text, errno_names());
    if (message.find("did you mean") == std::string::npos)
      message += " (expected \"allow\", \"log\", \"kill\" or an errno such as \"EPERM\")";
    return reader.error(node.place, std::move(message));
  }
  out = {SyscallAction::Kind::kErrno, static_cast<int>(known->number), node.text};
  return true;
}

namespace {

struct Operator {
  std::string_view text;
  Compare compare;
};

constexpr std::array<Operator, 6> kOperators{{{"==", Compare::kEqual},
                                              {"!=", Compare::kNotEqual},
                                              {"<", Compare::kLess},
                                              {"<=", Compare::kLessOrEqual},
                                              {">", Compare::kGreater},
                                              {">=", Compare::kGreaterOrEqual}}};
constexpr std::array<std::string_view, 7> kTestKeys{"==", "!=", "<", "<=", ">", ">=", "mask"};
constexpr std::array<std::string_view, 6> kArguments{"arg0", "arg1", "arg2",
                                                     "arg3", "arg4", "arg5"};

bool read_argument_value(Reader& reader, const Node& node, std::uint64_t& out) {
  if (node.kind == Node::Kind::kUnsigned) {
    out = node.number;
    return true;
  }
  constexpr std::string_view kWhat =
      "a whole number of at least 0, \"0x...\", or a constant such as \"AF_UNIX\"";
  if (!is_string(node) || node.text.empty()) return reader.expected(node, kWhat);
  if (const std::optional<std::uint64_t> number = parse_unsigned(node.text)) {
    out = *number;
    return true;
  }
  if (!is_letter(node.text.front())) return reader.expected(node, kWhat);
  const NamedNumber* known = find_name(argument_names(), node.text);
  if (known == nullptr) {
    return reader.error(node.place, unknown_name("constant", node.text, argument_names()));
  }
  out = known->number;
  return true;
}

/// One member of a test: an operator or the mask.
bool read_test_member(Reader& reader, const Member& member, ArgumentTest& out, int& operators) {
  const Reader::Scope scope(reader, member.key);
  if (member.key == "mask") {
    std::uint64_t mask = 0;
    const bool good = read_argument_value(reader, member.value, mask);
    out.mask = mask;
    return good;
  }
  for (const Operator& known : kOperators) {
    if (member.key != known.text) continue;
    ++operators;
    out.compare = known.compare;
    return read_argument_value(reader, member.value, out.value);
  }
  return reader.error(member.key_place, with_suggestion("unknown key", member.key, kTestKeys));
}

bool read_test(Reader& reader, const Node& node, ArgumentTest& out) {
  if (node.kind != Node::Kind::kObject) {
    return reader.expected(node, "a comparison such as {\"==\": \"AF_UNIX\"}");
  }
  int operators = 0;
  bool good = true;
  for (const Member& member : node.members) {
    good &= read_test_member(reader, member, out, operators);
  }
  if (!good) return false;
  if (operators != 1) {
    return reader.error(node.place, "exactly one of ==, !=, <, <=, > and >= is needed");
  }
  const bool equal = out.compare == Compare::kEqual;
  if (out.mask && !equal && out.compare != Compare::kNotEqual) {
    return reader.error(node.place, "\"mask\" goes with \"==\" and \"!=\" only");
  }
  if (out.mask && (out.value & ~*out.mask) != 0) {
    return reader.error(node.place, std::string(equal ? "never" : "always") +
                                        " holds: the value has bits that the mask takes away");
  }
  return true;
}

bool read_alternative(Reader& reader, const Node& node, std::vector<ArgumentTest>& out) {
  if (node.kind != Node::Kind::kObject) {
    return reader.expected(node, "an object such as {\"arg0\": {\"==\": \"AF_UNIX\"}}");
  }
  if (node.members.empty()) {
    return reader.error(node.place, "an alternative without a comparison would always hold");
  }
  bool good = true;
  for (const Member& member : node.members) {
    const Reader::Scope scope(reader, member.key);
    const auto known = std::find(kArguments.begin(), kArguments.end(), member.key);
    if (known == kArguments.end()) {
      good = reader.error(member.key_place, with_suggestion("unknown key", member.key, kArguments));
      continue;
    }
    ArgumentTest test;
    test.argument = static_cast<unsigned>(known - kArguments.begin());
    good &= read_test(reader, member.value, test);
    out.push_back(test);
  }
  return good;
}

}  // namespace

bool Alternatives::read(Reader& reader, const Node& node,
                        std::vector<std::vector<ArgumentTest>>& out) {
  if (node.kind != Node::Kind::kArray) return expected_shape(reader, node, "an array");
  if (node.elements.empty()) {
    return reader.error(node.place,
                        "no alternatives; leave \"when\" out for a rule that always "
                        "applies");
  }
  bool good = true;
  for (std::size_t i = 0; i < node.elements.size(); ++i) {
    const Reader::Scope scope(reader, i);
    good &= read_alternative(reader, node.elements[i], out.emplace_back());
  }
  return good;
}

namespace {

/// A duration as an rlimit in seconds or microseconds.
bool read_time_limit(Reader& reader, const Node& node, RlimitUnit unit, std::uint64_t& out) {
  std::chrono::milliseconds duration{};
  if (!read_duration(reader, node, duration)) return false;
  const auto milliseconds = static_cast<std::uint64_t>(duration.count());
  if (unit == RlimitUnit::kMicroseconds) {
    out = milliseconds * 1000;
    return true;
  }
  if (milliseconds % 1000 != 0) {
    return reader.error(node.place,
                        "the kernel counts whole seconds here, got " + found_text(node));
  }
  out = milliseconds / 1000;
  return true;
}

bool read_rlimit_value(Reader& reader, const Node& node, RlimitUnit unit, std::uint64_t& out) {
  switch (unit) {
    case RlimitUnit::kBytes:
      return read_size(reader, node, out);
    case RlimitUnit::kSeconds:
    case RlimitUnit::kMicroseconds:
      return read_time_limit(reader, node, unit, out);
    case RlimitUnit::kCount:
      break;
  }
  if (node.kind == Node::Kind::kUnsigned) {
    out = node.number;
    return true;
  }
  return reader.expected(node, "a whole number, or \"unlimited\"");
}

bool read_rlimit(Reader& reader, const Node& node, const RlimitName& name, Rlimit& out) {
  if (is_string(node) && node.text == "unlimited") {
    out.unlimited = true;
    return true;
  }
  if (!read_rlimit_value(reader, node, name.unit, out.value)) return false;
  if (out.value == std::numeric_limits<std::uint64_t>::max()) {
    return reader.error(node.place, "this number means no limit; write \"unlimited\"");
  }
  if (out.value >= name.least) return true;
  if (out.value == 0) {
    return reader.error(node.place,
                        "0 never means unlimited, and nothing could run with it; write "
                        "\"unlimited\" for no limit");
  }
  return reader.error(
      node.place, "at least " + std::to_string(name.least) + " is needed for a program to start");
}

}  // namespace

bool Rlimits::read(Reader& reader, const Node& node, std::map<std::string, Rlimit>& out) {
  if (node.kind != Node::Kind::kObject) return expected_shape(reader, node, "an object");
  bool good = true;
  for (const Member& member : node.members) {
    const Reader::Scope scope(reader, member.key);
    reader.set_origin(member.value.place);
    const auto known = std::find_if(rlimit_names().begin(), rlimit_names().end(),
                                    [&](const RlimitName& n) { return n.name == member.key; });
    if (member.key == "locks" || member.key == "rss") {
      good = reader.error(member.key_place,
                          "Linux takes this limit and ignores it (man 2 getrlimit), so it is "
                          "refused; remove it");
      continue;
    }
    if (known == rlimit_names().end()) {
      std::vector<std::string_view> names;
      for (const RlimitName& name : rlimit_names()) names.push_back(name.name);
      good = reader.error(member.key_place, with_suggestion("unknown key", member.key, names));
      continue;
    }
    if (member.value.kind == Node::Kind::kNull) continue;
    good &= read_rlimit(reader, member.value, *known, out[member.key]);
  }
  return good;
}

bool MountTarget::check(Reader& reader, const Place& place, std::string_view key) {
  return check_path_key(reader, place, key).has_value();
}

bool MaskTarget::check(Reader& reader, const Place& place, std::string_view key) {
  const std::optional<std::string> path = check_path_key(reader, place, key);
  if (path && *path == "/") return reader.error(place, "\"/\" itself cannot be masked");
  return path.has_value();
}

bool HiddenDirectory::check(Reader& reader, const Place& place, std::string_view key) {
  if (key == kHideWorkspace || key == kHideHome) return true;
  const Parsed<std::string> path = normalise_path(key);
  if (path && path->size() > 1 && path->find('/', 1) == std::string::npos) return true;
  return reader.error(place,
                      "expected a top-level directory such as \"/home\", \"@workspace\" or "
                      "\"@home\", got " +
                          in_quotes(key));
}

bool AddressRange::check(Reader& reader, const Place& place, std::string_view key) {
  const Parsed<Ipv4Range> range = parse_ipv4_range(key);
  return range ? true : reader.error(place, range.error() + ", got " + in_quotes(key));
}

bool PrivateRange::check(Reader& reader, const Place& place, std::string_view key) {
  if (!AddressRange::check(reader, place, key)) return false;
  if (is_private(*parse_ipv4_range(key))) return true;
  return reader.error(place, in_quotes(key) +
                                 " lies in none of the private ranges (10.0.0.0/8, 172.16.0.0/12, "
                                 "192.168.0.0/16, 100.64.0.0/10); public addresses are reached "
                                 "unless network.only or network.deny keeps them away");
}

bool OutsideAddress::check(Reader& reader, const Place& place, std::string_view key) {
  constexpr Ipv4Range kLoopback{0x7f000000, 8};
  // Of sun_path, without its end (man 7 unix).
  constexpr std::size_t kLongestPath = 107;
  if (key.starts_with('/')) {
    const std::optional<std::string> path = check_path_key(reader, place, key);
    if (!path || (*path == key && key.size() <= kLongestPath)) return path.has_value();
    return reader.error(place,
                        "the path of a socket has no \"//\", \"/.\" or \"/\" at its end, "
                        "and at most 107 bytes, got " +
                            in_quotes(key));
  }
  const std::size_t colon = key.rfind(':');
  const auto address = parse_ipv4_range(key.substr(0, colon));
  const std::string port(colon == std::string_view::npos ? "" : key.substr(colon + 1));
  const auto number = parse_decimal(port);
  const bool good = address && address->length == 32 && kLoopback.contains(*address) && number &&
                    *number >= 1 && *number <= 65535 && port == std::to_string(*number);
  return good ? true
              : reader.error(place,
                             "expected a loopback address and a port such as "
                             "\"127.0.0.1:8080\", or the path of a socket, got " +
                                 in_quotes(key));
}

bool SyscallName::check(Reader& reader, const Place& place, std::string_view key) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || is_digit(c) || c == '_'; };
  if (!key.empty() && std::all_of(key.begin(), key.end(), allowed)) return true;
  return reader.error(
      place, "expected the name of a system call such as \"ptrace\", got " + in_quotes(key));
}

bool VariableName::check(Reader& reader, const Place& place, std::string_view key) {
  const auto allowed = [](char c) { return is_letter(c) || is_digit(c) || c == '_'; };
  if (!key.empty() && key.size() <= 64 && std::all_of(key.begin(), key.end(), allowed)) return true;
  return reader.error(
      place, "expected a name of 1 to 64 letters, digits and \"_\", got " + in_quotes(key));
}

bool EnvironmentName::check(Reader& reader, const Place& place, std::string_view key) {
  if (!key.empty() && key.find('=') == std::string_view::npos) return true;
  return reader.error(place,
                      "expected the name of a variable, which is not empty and holds no "
                      "\"=\", got " +
                          in_quotes(key));
}

}  // namespace belljar::policy
