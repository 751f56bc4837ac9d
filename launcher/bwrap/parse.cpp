#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "launcher/bwrap/options.hpp"
#include "policy/names.hpp"

namespace belljar::launcher::bwrap {
namespace {

/// bubblewrap's own bound, words from --args among them.
constexpr std::size_t kMostWords = 9000;
constexpr std::uint64_t kMostBytes = SIZE_MAX >> 1;
constexpr std::uint64_t kEveryCapability = ~std::uint64_t{0};

Status refuse(std::string what) { return fail({ErrorKind::kInvalid, 0, std::move(what), {}, {}}); }

/// A whole decimal number that is not negative, as strtol reads one.
std::optional<long> number(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text.c_str(), &end, 10);
  const bool whole = end != text.c_str() && *end == '\0';
  return whole && errno == 0 && value >= 0 ? std::optional(value) : std::nullopt;
}

class Parser;
using Words = std::span<const std::string>;

struct Option {
  const char* name;
  std::size_t values;
  Status (*take)(Parser& parser, const Option& option, Words values);
  const char* usage;  ///< "SRC DEST"
  const char* help;
};

std::span<const Option> options();

class Parser {
 public:
  Parser(Options& out, const ReadDescriptor& read) : out_(out), read_(read) {}

  Status parse(Words words) {
    BELLJAR_CHECK(walk(words, /*nested=*/false));
    return layers_.empty() ? Status() : missing_overlay();
  }

  // What the table's functions use.

  Options& out() { return out_; }

  Result<int> descriptor(const std::string& text) {
    const std::optional<long> value = number(text);
    if (!value || *value > INT_MAX) return tl::unexpected(refuse("Invalid fd: " + text).error());
    return static_cast<int>(*value);
  }

  Status keep_last(const char* option, bool given) {
    if (given)
      out_.warnings.push_back(std::string("Only the last ") + option + " option will take effect");
    return {};
  }

  Status set_descriptor(int& where, const Option& option, const std::string& text) {
    BELLJAR_CHECK(keep_last(option.name, where >= 0));
    where = BELLJAR_TRY(descriptor(text));
    return {};
  }

  FileOperation& add(FileKind kind, const Option& option) {
    FileOperation made;
    made.kind = kind;
    made.option = option.name;
    out_.files.push_back(std::move(made));
    return out_.files.back();
  }

  std::optional<mode_t> take_mode() { return std::exchange(mode_, std::nullopt); }
  std::uint64_t take_size() { return std::exchange(size_, std::nullopt).value_or(0); }
  std::vector<std::string> take_layers() { return std::exchange(layers_, {}); }
  void add_layer(const std::string& path) { layers_.push_back(path); }

  Status set_mode(const std::string& text) {
    if (mode_) return refuse("--perms given twice for the same action");
    mode_ = BELLJAR_TRY(octal(text, "--perms"));
    return {};
  }

  Status set_size(const std::string& text) {
    if (size_) return refuse("--size given twice for the same action");
    char* end = nullptr;
    errno = 0;
    const bool digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
    const std::uint64_t value = std::strtoull(text.c_str(), &end, 0);
    if (!digit || *end != '\0' || errno != 0 || value == 0)
      return refuse("--size takes a non-zero number of bytes");
    if (value > kMostBytes)
      return refuse("--size (for tmpfs) is limited to " + std::to_string(kMostBytes));
    size_ = value;
    return {};
  }

  static Result<mode_t> octal(const std::string& text, const std::string& option) {
    char* end = nullptr;
    errno = 0;
    const unsigned long value = std::strtoul(text.c_str(), &end, 8);
    if (end == text.c_str() || *end != '\0' || errno != 0 || value > 07777)
      return tl::unexpected(refuse(option + " takes an octal argument <= 07777").error());
    return static_cast<mode_t>(value);
  }

  /// The options in a descriptor. What stands behind the last of them is dropped.
  Status take_args(const std::string& text) {
    if (nested_) return refuse("--args not supported in arguments file");
    const int from = BELLJAR_TRY(descriptor(text));
    Result<std::string> data = read_(from);
    if (!data) {
      Error error = data.error();
      error.what = "Can't read --args data";
      return fail(std::move(error));
    }
    std::vector<std::string> words;
    for (std::size_t at = 0; at < data->size();) {
      const std::size_t end = std::min(data->find('\0', at), data->size());
      words.push_back(data->substr(at, end - at));
      at = end + 1;
    }
    nested_ = true;
    Status done = walk(words, /*nested=*/true);
    nested_ = false;
    return done;
  }

  Status add_filter(const std::string& text) {
    if (out_.seccomp >= 0) return refuse("--add-seccomp-fd cannot be combined with --seccomp");
    const int from = BELLJAR_TRY(descriptor(text));
    Result<std::string> data = read_(from);
    if (!data) {
      Error error = data.error();
      error.what = "Can't read seccomp data";
      return fail(std::move(error));
    }
    out_.filters.push_back(std::move(*data));
    return {};
  }

 private:
  Status walk(Words words, bool nested) {
    seen_ += words.size();
    if (seen_ > kMostWords) return refuse("Exceeded maximum number of arguments 9000");
    for (std::size_t at = 0; at < words.size();) {
      const std::string& word = words[at];
      if (word == "--" || !word.starts_with("-")) {
        const std::size_t from = word == "--" ? at + 1 : at;
        if (!nested)
          out_.command.assign(words.begin() + static_cast<std::ptrdiff_t>(from), words.end());
        return {};
      }
      const Option* option = find(word);
      if (option == nullptr) return refuse("Unknown option " + word);
      if (words.size() - at - 1 < option->values) return too_few(*option);
      BELLJAR_CHECK(option->take(*this, *option, words.subspan(at + 1, option->values)));
      if (out_.help || out_.version) return {};
      BELLJAR_CHECK(check_pending(*option));
      at += 1 + option->values;
    }
    return {};
  }

  static const Option* find(const std::string& word) {
    for (const Option& option : options())
      if (word == option.name) return &option;
    return nullptr;
  }

  static Status too_few(const Option& option) {
    static constexpr std::array<const char*, 4> kCounts = {"", "an argument", "two arguments",
                                                           "three arguments"};
    return refuse(std::string(option.name) + " takes " + kCounts[option.values]);
  }

  static bool is_one_of(std::string_view name, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), name) != list.end();
  }

  /// --perms, --size and --overlay-src are about the option that follows, which has taken them by
  /// now; that may be the first of an --args.
  Status check_pending(const Option& option) {
    const bool modifies = is_one_of(option.name, {"--perms", "--size"});
    if (mode_ && !modifies)
      return refuse("--perms must be followed by an option that creates a file");
    if (size_ && !modifies) return refuse("--size must be followed by --tmpfs");
    if (!layers_.empty() && option.name != std::string_view("--overlay-src"))
      return missing_overlay();
    return {};
  }

  static Status missing_overlay() {
    return refuse(
        "--overlay-src must be followed by another --overlay-src or one of --overlay, "
        "--tmp-overlay, or --ro-overlay");
  }

  Options& out_;
  const ReadDescriptor& read_;
  std::size_t seen_ = 0;
  bool nested_ = false;
  std::optional<mode_t> mode_;
  std::optional<std::uint64_t> size_;
  std::vector<std::string> layers_;
};

// --- the table --------------------------------------------------------------------------------

template <bool Options::*member>
Status set_flag(Parser& parser, const Option&, Words) {
  parser.out().*member = true;
  return {};
}

template <int Options::*member>
Status set_fd(Parser& parser, const Option& option, Words values) {
  return parser.set_descriptor(parser.out().*member, option, values[0]);
}

template <std::optional<std::string> Options::*member>
Status set_text(Parser& parser, const Option& option, Words values) {
  BELLJAR_CHECK(parser.keep_last(option.name, (parser.out().*member).has_value()));
  parser.out().*member = values[0];
  return {};
}

template <std::optional<std::uint32_t> Options::*member>
Status set_id(Parser& parser, const Option& option, Words values) {
  BELLJAR_CHECK(parser.keep_last(option.name, (parser.out().*member).has_value()));
  const std::optional<long> id = number(values[0]);
  constexpr long kMostId = 0xfffffffe;  // (uid_t)-1 means "none".
  if (!id || *id > kMostId)
    return refuse(std::string("Invalid ") + (option.name + 2) + ": " + values[0]);
  parser.out().*member = static_cast<std::uint32_t>(*id);
  return {};
}

Status unshare_all(Parser& parser, const Option&, Words) {
  Options& out = parser.out();
  out.user = out.cgroup = Want::kIfPossible;
  out.ipc = out.pid = out.net = out.uts = true;
  return {};
}

template <Want Options::*member, Want want>
Status set_want(Parser& parser, const Option&, Words) {
  parser.out().*member = want;
  return {};
}

Status share_net(Parser& parser, const Option&, Words) {
  parser.out().net = false;
  return {};
}

Status set_argv0(Parser& parser, const Option&, Words values) {
  if (parser.out().argv0) return refuse("--argv0 used multiple times");
  parser.out().argv0 = values[0];
  return {};
}

Status set_seccomp(Parser& parser, const Option& option, Words values) {
  if (!parser.out().filters.empty())
    return refuse("--seccomp cannot be combined with --add-seccomp-fd");
  return parser.set_descriptor(parser.out().seccomp, option, values[0]);
}

Status change_environment(Parser& parser, const Option& option, Words values) {
  using Kind = EnvironmentChange::Kind;
  EnvironmentChange change;
  if (!values.empty()) {
    change.kind = values.size() == 2 ? Kind::kSet : Kind::kUnset;
    change.name = values[0];
    if (change.name.empty() || change.name.find('=') != std::string::npos)
      return refuse(std::string(option.name + 2) + " failed: \"" + change.name +
                    "\" cannot be the name of a variable");
    if (values.size() == 2) change.value = values[1];
  } else {
    change.kind = Kind::kClear;
  }
  parser.out().environment.push_back(std::move(change));
  return {};
}

Status change_capability(Parser& parser, const Option& option, Words values) {
  CapabilityChange change;
  change.add = std::string_view(option.name) == "--cap-add";
  std::string name = values[0];
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (name == "ALL") {
    change.bits = kEveryCapability;
  } else {
    const policy::NamedNumber* known = policy::find_name(policy::capability_names(), name);
    const std::optional<long> by_number = known == nullptr ? number(name) : known->number;
    constexpr long kMostCapabilities = 64;
    if (!by_number || *by_number >= kMostCapabilities) return refuse("unknown cap: " + values[0]);
    change.bits = std::uint64_t{1} << *by_number;
  }
  parser.out().capabilities.push_back(change);
  return {};
}

template <bool readonly, bool devices, bool optional>
Status bind(Parser& parser, const Option& option, Words values) {
  FileOperation& made = parser.add(FileKind::kBind, option);
  made.source = values[0];
  made.target = values[1];
  made.readonly = readonly;
  made.devices = devices;
  made.optional = optional;
  return {};
}

/// What comes by a descriptor: a place to bind, or content.
template <FileKind kind, bool readonly>
Status from_descriptor(Parser& parser, const Option& option, Words values) {
  const int descriptor = BELLJAR_TRY(parser.descriptor(values[0]));
  FileOperation& made = parser.add(kind, option);
  made.descriptor = descriptor;
  made.target = values[1];
  made.readonly = readonly;
  if (kind != FileKind::kBindDescriptor) made.mode = parser.take_mode();
  return {};
}

/// What stands at a path and is made by that alone.
template <FileKind kind>
Status at(Parser& parser, const Option& option, Words values) {
  FileOperation& made = parser.add(kind, option);
  made.target = values[0];
  if (kind == FileKind::kTmpfs || kind == FileKind::kDirectory) made.mode = parser.take_mode();
  if (kind == FileKind::kTmpfs) made.size = parser.take_size();
  return {};
}

Status link(Parser& parser, const Option& option, Words values) {
  FileOperation& made = parser.add(FileKind::kSymlink, option);
  made.source = values[0];
  made.target = values[1];
  return {};
}

Status change_mode(Parser& parser, const Option& option, Words values) {
  const mode_t mode = BELLJAR_TRY(Parser::octal(values[0], "--chmod"));
  FileOperation& made = parser.add(FileKind::kChmod, option);
  made.mode = mode;
  made.target = values[1];
  return {};
}

Status overlay(Parser& parser, const Option& option, Words values) {
  const std::string name = option.name;
  std::vector<std::string> layers = parser.take_layers();
  const std::size_t least = name == "--ro-overlay" ? 2 : 1;
  if (layers.size() < least)
    return refuse(name + " requires at least " + (least == 1 ? "one" : "two") + " --overlay-src");
  FileOperation& made = parser.add(FileKind::kOverlay, option);
  made.layers = std::move(layers);
  made.target = values.back();
  made.readonly = name == "--ro-overlay";
  made.memory = name == "--tmp-overlay";
  if (values.size() == 3) made.source = values[0], made.work = values[1];
  return {};
}

using F = FileKind;
using O = Options;
constexpr Want kYes = Want::kYes, kTry = Want::kIfPossible;

// NOLINTBEGIN(readability-function-size)
constexpr Option kOptions[] = {
    {"--help", 0, set_flag<&O::help>, "", "print this"},
    {"--version", 0, set_flag<&O::version>, "", "print the version"},
    {"--args", 1, [](Parser& p, const Option&, Words v) { return p.take_args(v[0]); }, "FD",
     "take options from FD, each ended by a NUL"},
    {"--argv0", 1, set_argv0, "VALUE", "what the command sees as its own name"},
    {"--level-prefix", 0, set_flag<&O::level_prefix>, "", "begin messages with <3> or <4>"},
    {"--unshare-all", 0, unshare_all, "", "an own namespace of each kind"},
    {"--share-net", 0, share_net, "", "but the caller's network (after --unshare-all)"},
    {"--unshare-user", 0, set_want<&O::user, kYes>, "", "an own user namespace"},
    {"--unshare-user-try", 0, set_want<&O::user, kTry>, "", "where the host has them"},
    {"--unshare-ipc", 0, set_flag<&O::ipc>, "", "an own ipc namespace"},
    {"--unshare-pid", 0, set_flag<&O::pid>, "", "an own pid namespace"},
    {"--unshare-net", 0, set_flag<&O::net>, "", "an own network, with loopback alone"},
    {"--unshare-uts", 0, set_flag<&O::uts>, "", "an own host name"},
    {"--unshare-cgroup", 0, set_want<&O::cgroup, kYes>, "", "an own cgroup namespace"},
    {"--unshare-cgroup-try", 0, set_want<&O::cgroup, kTry>, "", "where the host has them"},
    {"--userns", 1, set_fd<&O::userns>, "FD", "join this user namespace"},
    {"--userns2", 1, set_fd<&O::userns2>, "FD", "and this one, when all is mounted"},
    {"--disable-userns", 0, set_flag<&O::disable_userns>, "", "no user namespaces inside"},
    {"--assert-userns-disabled", 0, set_flag<&O::userns_disabled>, "",
     "fail where one can be made"},
    {"--pidns", 1, set_fd<&O::pidns>, "FD", "join this pid namespace"},
    {"--uid", 1, set_id<&O::uid>, "N", "the uid inside (takes a user namespace)"},
    {"--gid", 1, set_id<&O::gid>, "N", "the gid inside (takes a user namespace)"},
    {"--hostname", 1, set_text<&O::hostname>, "NAME", "the host name (takes --unshare-uts)"},
    {"--chdir", 1, set_text<&O::directory>, "DIR", "where the command starts"},
    {"--clearenv", 0, change_environment, "", "forget all variables"},
    {"--setenv", 2, change_environment, "NAME VALUE", "set a variable"},
    {"--unsetenv", 1, change_environment, "NAME", "forget a variable"},
    {"--lock-file", 1,
     [](Parser& p, const Option&, Words v) {
       p.out().lock_files.push_back(v[0]);
       return Status();
     },
     "DEST", "hold a read lock on it while the sandbox is there"},
    {"--sync-fd", 1, set_fd<&O::sync_fd>, "FD", "keep it open while the sandbox is there"},
    {"--bind", 2, bind<false, false, false>, "SRC DEST", "show a path of the host, writable"},
    {"--bind-try", 2, bind<false, false, true>, "SRC DEST", "if SRC exists"},
    {"--dev-bind", 2, bind<false, true, false>, "SRC DEST", "with its device nodes in use"},
    {"--dev-bind-try", 2, bind<false, true, true>, "SRC DEST", "if SRC exists"},
    {"--ro-bind", 2, bind<true, false, false>, "SRC DEST", "read-only"},
    {"--ro-bind-try", 2, bind<true, false, true>, "SRC DEST", "if SRC exists"},
    {"--bind-fd", 2, from_descriptor<F::kBindDescriptor, false>, "FD DEST",
     "show what FD is on, writable"},
    {"--ro-bind-fd", 2, from_descriptor<F::kBindDescriptor, true>, "FD DEST", "read-only"},
    {"--remount-ro", 1, at<F::kRemountReadOnly>, "DEST", "make one mount read-only"},
    {"--overlay-src", 1,
     [](Parser& p, const Option&, Words v) {
       p.add_layer(v[0]);
       return Status();
     },
     "SRC", "a layer of the overlay that follows, the lowest first"},
    {"--overlay", 3, overlay, "RW WORK DEST", "an overlay whose changes go to RW"},
    {"--tmp-overlay", 1, overlay, "DEST", "an overlay whose changes are lost"},
    {"--ro-overlay", 1, overlay, "DEST", "an overlay that cannot be changed"},
    {"--exec-label", 1,
     [](Parser&, const Option&, Words) { return refuse("labeling not supported on this system"); },
     "LABEL", "SELinux only: refused"},
    {"--file-label", 1,
     [](Parser&, const Option&, Words) { return refuse("labeling not supported on this system"); },
     "LABEL", "SELinux only: refused"},
    {"--proc", 1, at<F::kProc>, "DEST", "a /proc of the sandbox's own"},
    {"--dev", 1, at<F::kDev>, "DEST", "a small /dev"},
    {"--tmpfs", 1, at<F::kTmpfs>, "DEST", "an empty tmpfs"},
    {"--mqueue", 1, at<F::kMqueue>, "DEST", "the message queues"},
    {"--dir", 1, at<F::kDirectory>, "DEST", "make a directory"},
    {"--file", 2, from_descriptor<F::kFile, false>, "FD DEST", "write what FD holds to a file"},
    {"--bind-data", 2, from_descriptor<F::kBindData, false>, "FD DEST", "show what FD holds"},
    {"--ro-bind-data", 2, from_descriptor<F::kBindData, true>, "FD DEST", "read-only"},
    {"--symlink", 2, link, "TEXT DEST", "make a symbolic link"},
    {"--seccomp", 1, set_seccomp, "FD", "load this filter last of all"},
    {"--add-seccomp-fd", 1, [](Parser& p, const Option&, Words v) { return p.add_filter(v[0]); },
     "FD", "and this one (as many as wanted)"},
    {"--block-fd", 1, set_fd<&O::block_fd>, "FD", "wait for a byte or its end before the command"},
    {"--userns-block-fd", 1, set_fd<&O::userns_block_fd>, "FD",
     "wait until somebody else has written the id maps"},
    {"--info-fd", 1, set_fd<&O::info_fd>, "FD", "write what was made, as JSON"},
    {"--json-status-fd", 1, set_fd<&O::status_fd>, "FD", "and how it ended, as JSON lines"},
    {"--new-session", 0, set_flag<&O::new_session>, "", "a terminal session of its own"},
    {"--die-with-parent", 0, set_flag<&O::die_with_parent>, "", "end when the caller does"},
    {"--as-pid-1", 0, set_flag<&O::as_pid_1>, "", "without a reaper of ours"},
    {"--cap-add", 1, change_capability, "CAP", "add a capability, or ALL"},
    {"--cap-drop", 1, change_capability, "CAP", "drop a capability, or ALL"},
    {"--perms", 1, [](Parser& p, const Option&, Words v) { return p.set_mode(v[0]); }, "OCTAL",
     "the mode of what the next option makes"},
    {"--size", 1, [](Parser& p, const Option&, Words v) { return p.set_size(v[0]); }, "BYTES",
     "of the tmpfs that follows"},
    {"--chmod", 2, change_mode, "OCTAL PATH", "change the mode of what is there"},
    {"--not-a-security-boundary", 0, [](Parser&, const Option&, Words) { return Status(); }, "",
     "accepted; nothing is held less for it"},
};
// NOLINTEND(readability-function-size)

std::span<const Option> options() { return kOptions; }

}  // namespace

std::string FileOperation::text() const {
  std::string said = option;
  const auto say = [&said](const std::string& word) { said += " " + word; };
  if (kind == FileKind::kChmod && mode) {
    std::array<char, 16> octal{};
    std::snprintf(octal.data(), octal.size(), "%04o", *mode);
    say(octal.data());
  }
  if (descriptor >= 0) say(std::to_string(descriptor));
  if (!source.empty()) say(source);
  if (!work.empty()) say(work);
  if (!target.empty()) say(target);
  return said;
}

Result<Options> parse(std::span<const std::string> words, const ReadDescriptor& read,
                      bool* level_prefix) {
  Options parsed;
  const Status done = Parser(parsed, read).parse(words);
  if (level_prefix != nullptr) *level_prefix = parsed.level_prefix;
  if (!done) return tl::unexpected(done.error());
  return parsed;
}

namespace {

Status check_user_namespace(const Options& options, uid_t uid, gid_t gid) {
  const bool own = options.user != Want::kNo || (uid != 0 && options.userns < 0);
  if (options.userns >= 0 && options.user != Want::kNo)
    return refuse("--userns not compatible --unshare-user");
  const bool mapped = own || options.userns >= 0;
  if (options.uid && *options.uid != uid && !mapped)
    return refuse("Specifying --uid requires --unshare-user or --userns");
  if (options.gid && *options.gid != gid && !mapped)
    return refuse("Specifying --gid requires --unshare-user or --userns");
  if (options.disable_userns && options.user != Want::kYes)
    return refuse("--disable-userns requires --unshare-user");
  if (options.userns_block_fd < 0) return {};
  if (options.user != Want::kYes) return refuse("--userns-block-fd requires --unshare-user");
  if (options.disable_userns)
    return refuse("--disable-userns is not compatible with --userns-block-fd");
  if (options.info_fd < 0) return refuse("--userns-block-fd requires --info-fd");
  return {};
}

}  // namespace

Status check(const Options& options, uid_t uid, gid_t gid) {
  BELLJAR_CHECK(check_user_namespace(options, uid, gid));
  if (options.as_pid_1 && !options.pid)
    return refuse("Specifying --as-pid-1 requires --unshare-pid");
  if (options.as_pid_1 && !options.lock_files.empty())
    return refuse("Specifying --as-pid-1 and --lock-file is not permitted");
  if (options.hostname && !options.uts)
    return refuse("Specifying --hostname requires --unshare-uts");
  return {};
}

Result<std::vector<std::string>> environment_after(const std::vector<EnvironmentChange>& changes,
                                                   std::span<const char* const> callers) {
  std::map<std::string, std::string> values;
  for (const char* entry : callers)
    if (const char* equals = std::strchr(entry, '='))
      values.insert_or_assign(std::string(entry, equals), equals + 1);
  for (const EnvironmentChange& change : changes) {
    if (change.kind == EnvironmentChange::Kind::kClear) values.clear();
    if (change.kind == EnvironmentChange::Kind::kUnset) values.erase(change.name);
    if (change.kind == EnvironmentChange::Kind::kSet) values[change.name] = change.value;
  }
  std::vector<std::string> entries;
  entries.reserve(values.size());
  for (const auto& [name, value] : values) {
    entries.push_back(name);
    entries.back() += "=" + value;
  }
  return entries;
}

std::string help_text(const std::string& program) {
  std::string text = "usage: " + program + " [OPTIONS...] [--] COMMAND [ARGS...]\n\n";
  for (const Option& option : options()) {
    std::string left = std::string("    ") + option.name + " " + option.usage;
    left.resize(std::max<std::size_t>(left.size() + 1, 36), ' ');
    text += left + option.help + "\n";
  }
  return text;
}

}  // namespace belljar::launcher::bwrap
