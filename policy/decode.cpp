#include "policy/decode.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "policy/fields.hpp"
#include "policy/paths.hpp"
#include "policy/quote.hpp"
#include "policy/suggest.hpp"
#include "policy/units.hpp"

namespace belljar::policy {
namespace {

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <class Entry>
inline constexpr bool kIsField = true;
template <>
inline constexpr bool kIsField<Reserved> = false;
template <>
inline constexpr bool kIsField<OfLayer> = false;

template <class T>
std::vector<std::string_view> known_keys() {
  std::vector<std::string_view> keys;
  const auto add = [&keys]<class Entry>(const Entry& entry) {
    if constexpr (!std::is_same_v<Entry, Reserved>) keys.push_back(entry.key);
  };
  std::apply([&add](const auto&... entries) { (add(entries), ...); }, Fields<T>::kTable);
  return keys;
}

template <class Form>
struct SectionType {
  using Type = void;
};
template <class T>
struct SectionType<Section<T>> {
  using Type = T;
};

/// The sections of `T` that know `key`, as paths: `filesystem.workspace`.
template <class T>
std::vector<std::string> paths_of(std::string_view key) {
  std::vector<std::string> paths;
  const auto look =
      [&]<class Owner, class Value, class Form>(const Field<Owner, Value, Form>& field) {
        using Inner = typename SectionType<Form>::Type;
        if constexpr (!std::is_void_v<Inner>) {
          const std::vector<std::string_view> keys = known_keys<Inner>();
          if (std::find(keys.begin(), keys.end(), key) != keys.end())
            paths.push_back(member_path(std::string(field.key), key));
        }
      };
  const auto look_at = [&look]<class Entry>(const Entry& entry) {
    if constexpr (kIsField<Entry>) look(entry);
  };
  std::apply([&look_at](const auto&... entries) { (look_at(entries), ...); }, Fields<T>::kTable);
  return paths;
}

/// A key that a section knows has been written a level too high; another is probably misspelt.
template <class T>
std::string unknown_key(std::string_view key) {
  const std::vector<std::string> paths = paths_of<T>(key);
  if (paths.empty()) return with_suggestion("unknown key", key, known_keys<T>());
  std::string text = "unknown key; did you mean ";
  for (std::size_t i = 0; i < paths.size(); ++i)
    text += (i == 0 ? "" : i + 1 == paths.size() ? " or " : ", ") + in_quotes(paths[i]);
  return text + "?";
}

/// Keys of the top level that people may add for tools of their own.
template <class T>
bool is_extension(std::string_view key) {
  return std::is_same_v<T, Policy> && key.starts_with("x-");
}

// Reading one member.

template <class Owner, class Value, class Form>
void read_entry(Reader& reader, const Field<Owner, Value, Form>& field, const Member& member,
                Owner& owner) {
  const Reader::Scope scope(reader, member.key, field.example);
  const bool leaf = member.value.kind != Node::Kind::kObject;
  reader.set_origin(leaf ? member.value.place : member.key_place);
  if (member.value.kind == Node::Kind::kNull) return;
  if constexpr (kIsOptional<Value>) {
    typename Value::value_type value{};
    if (Form::read(reader, member.value, value)) owner.*field.member = std::move(value);
  } else {
    Form::read(reader, member.value, owner.*field.member);
  }
}

template <class Owner>
void read_entry(Reader& reader, const Reserved&, const Member& member, Owner&) {
  const Reader::Scope scope(reader, member.key);
  reader.error(member.key_place, std::string(kNotEnforced));
}

template <class Owner>
void read_entry(Reader&, const OfLayer&, const Member&, Owner&) {}

template <class T>
void read_member(Reader& reader, const Member& member, T& out) {
  const auto matches = [&](const auto& entry) {
    if (entry.key != member.key) return false;
    read_entry(reader, entry, member, out);
    return true;
  };
  const bool known = std::apply([&](const auto&... entries) { return (matches(entries) || ...); },
                                Fields<T>::kTable);
  if (known || is_extension<T>(member.key)) return;
  const Reader::Scope scope(reader, member.key);
  reader.error(member.key_place, unknown_key<T>(member.key));
}

// Which members belong together.

template <class T>
Cases case_of(const Node&, const T&) {
  return kAlways;
}

/// The case of `type`, or none when it is missing or wrong, which is an error already.
template <class E>
Cases case_by_type(const Node& node, E type) {
  const Member* member = node.find("type");
  if (member == nullptr || member->value.kind != Node::Kind::kString) return kNever;
  for (const Choice<E>& choice : kChoices<E>) {
    if (choice.name == member->value.text) return 1U << static_cast<unsigned>(type);
  }
  return kNever;
}

Cases case_of(const Node& node, const Mount& mount) { return case_by_type(node, mount.type); }
Cases case_of(const Node& node, const Variable& variable) {
  return case_by_type(node, variable.type);
}

template <class T>
constexpr std::string_view kThing;
template <>
constexpr std::string_view kThing<Mount> = "a mount";
template <>
constexpr std::string_view kThing<Variable> = "a variable";

/// `a mount of type "bind"`
template <class T>
std::string case_text(const Node& node) {
  const Member* type = node.find("type");
  return type == nullptr ? "" : std::string(kThing<T>) + " of type " + in_quotes(type->value.text);
}

template <class T>
void refuse_member(Reader& reader, const Node& node, const Member& member) {
  const Reader::Scope scope(reader, member.key);
  std::string message = in_quotes(member.key) + " does not apply to " + case_text<T>(node);
  // With the type from another text, the reader of the message cannot just delete the line.
  const Place& type = node.find("type")->value.place;
  if (type.source != member.key_place.source) {
    message += ", which it is since " + reader.text_of(type) + "; null removes the member there";
  }
  reader.error(member.key_place, std::move(message));
}

template <class T, class Entry>
void check_case(Reader& reader, const Node& node, const Entry& entry, Cases cases) {
  if constexpr (kIsField<Entry>) {
    const Member* member = node.find(entry.key);
    if (member != nullptr && cases != kNever && (entry.applies & cases) == 0) {
      refuse_member<T>(reader, node, *member);
    }
    const bool required = entry.required == kAlways || (entry.required & cases) != 0;
    if (member == nullptr && required) {
      const bool always = entry.required == kAlways;
      reader.error(node.place, in_quotes(entry.key) + " is required" +
                                   (always ? "" : " for " + case_text<T>(node)));
    }
  }
}

// What must hold beyond single members.

template <class T>
void check_whole(Reader&, const Node&, T&) {}

void refuse_at(Reader& reader, const Node& node, std::string_view key, std::string message) {
  const Member* member = node.find(key);
  const Reader::Scope scope(reader, key);
  reader.error(member == nullptr ? node.place : member->value.place, std::move(message));
}

/// Flags of new file systems that the kernel or belljar always sets.
void check_lasting_flags(Reader& reader, const Node& node, const Mount& mount) {
  const MountType type = mount.type;
  const bool view = type == MountType::kProc || type == MountType::kMqueue;
  const bool lasting = view || type == MountType::kDev || type == MountType::kOverlay;
  if (lasting && !mount.nosuid) {
    refuse_at(reader, node, "nosuid",
              "of this type cannot be false: it is always set, and under no_new_privs no "
              "set-user-id program gains anything");
  }
  if ((view || type == MountType::kOverlay || type == MountType::kTmpfs) && !mount.nodev) {
    refuse_at(reader, node, "nodev",
              "of this type cannot be false: the kernel opens no device on a file system that a "
              "user namespace has mounted; bind the device's own node");
  }
  if (view && node.find("noexec") != nullptr && !mount.noexec) {
    refuse_at(reader, node, "noexec", "of this type cannot be false: nothing in it is a program");
  }
}

/// The kernel refuses layers that lie in each other; where it does not, the command could reach
/// what is under its own feet.
void check_layers_apart(Reader& reader, const Node& node, const Mount& mount) {
  const auto check = [&](std::string_view key, const std::string& path, const std::string& other) {
    if (path.empty() || other.empty()) return true;
    if (!is_within(path, other) && !is_within(other, path)) return true;
    refuse_at(reader, node, key,
              path == other ? "is the directory " + in_quotes(other) + " once more"
                            : in_quotes(path) + " and " + in_quotes(other) +
                                  " lie one in the other, which an overlay cannot have");
    return false;
  };
  for (std::size_t i = 0; i < mount.lower.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!check("lower", mount.lower[i], mount.lower[j])) return;
    }
    if (!check("upper", mount.upper, mount.lower[i])) return;
    if (!check("work", mount.work, mount.lower[i])) return;
  }
  check("work", mount.work, mount.upper);
}

void check_overlay(Reader& reader, const Node& node, const Mount& mount) {
  check_layers_apart(reader, node, mount);
  if (mount.upper.empty() && !mount.work.empty()) {
    refuse_at(reader, node, "work", "means nothing without \"upper\"");
  }
  if (!mount.upper.empty() && mount.work.empty()) {
    refuse_at(reader, node, "upper",
              "\"work\" is required beside \"upper\": an empty directory on the same file system");
  }
  if (mount.readonly && mount.upper.empty() && mount.lower.size() == 1) {
    refuse_at(reader, node, "lower",
              "a read-only overlay needs two directories or more; a bind shows one");
  }
  if (mount.upper.empty() && !mount.readonly) return;
  for (const std::string_view key : {"size", "inodes", "mode"}) {
    if (node.find(key) == nullptr) continue;
    refuse_at(reader, node, key,
              mount.readonly
                  ? "does not apply to a read-only overlay, which holds no changes; null removes it"
                  : "does not apply to an overlay with an \"upper\" of the host, whose file system "
                    "sets it; limits.disk counts what is in it");
  }
}

void check_whole(Reader& reader, const Node& node, Mount& mount) {
  const Member* source = node.find("source");
  check_lasting_flags(reader, node, mount);
  if (mount.type == MountType::kOverlay) check_overlay(reader, node, mount);
  if (mount.type != MountType::kBind) return;
  if (node.find("readonly") == nullptr) mount.readonly = true;
  if (source == nullptr || mount.source.empty()) return;
  const Reader::Scope scope(reader, "source");
  const Parsed<std::string> path = normalise_path(mount.source);
  if (path) {
    mount.source = *path;
  } else {
    reader.error(source->value.place, path.error());
  }
}

void check_whole(Reader& reader, const Node& node, Variable& variable) {
  for (const std::string_view key : {"min", "max"}) {
    const Member* bound = node.find(key);
    const std::optional<std::string>& text = key == "min" ? variable.min : variable.max;
    if (bound == nullptr || !text) continue;
    // Against the other bound it is measured as a value is.
    const Reader::Scope scope(reader, key);
    Variable checked = variable;
    (key == "min" ? checked.min : checked.max).reset();
    const Parsed<std::string> good = check_value(checked, *text);
    if (!good) reader.error(bound->value.place, good.error());
  }
  if (variable.type != VariableType::kEnum || !variable.values.empty()) return;
  const Member* values = node.find("values");
  if (values == nullptr || values->value.kind != Node::Kind::kArray) return;
  const Reader::Scope scope(reader, "values");
  reader.error(values->value.place, "an enum needs at least one value");
}

void check_whole(Reader& reader, const Node& node, SyscallRule& rule) {
  const Member* when = node.find("when");
  const Member* otherwise = node.find("otherwise");
  if (when != nullptr && otherwise == nullptr) {
    reader.error(node.place, "\"otherwise\" is required beside \"when\"");
  } else if (when == nullptr && otherwise != nullptr) {
    const Reader::Scope scope(reader, "otherwise");
    reader.error(otherwise->key_place, "means nothing without \"when\"");
  } else if (otherwise != nullptr && node.find("action") != nullptr &&
             rule.action == rule.otherwise) {
    const Reader::Scope scope(reader, "otherwise");
    reader.error(otherwise->value.place, "is the same as \"action\"");
  }
}

void check_whole(Reader& reader, const Node& node, PolicyTest&) {
  const bool tries = node.find("try") != nullptr, runs = node.find("run") != nullptr;
  const Member* expect = node.find("expect");
  if (tries == runs) reader.error(node.place, "one of \"try\" and \"run\" is required");
  if (tries == runs || expect == nullptr) return;
  const Reader::Scope scope(reader, "expect");
  const bool ends = expect->value.kind == Node::Kind::kObject;
  if (tries && ends) reader.error(expect->value.place, "a \"try\" is \"denied\" or \"allowed\"");
  if (runs && !ends) reader.error(expect->value.place, "a \"run\" ends, as in {\"exit\": 0}");
  if (runs && node.find("run")->value.elements.empty())
    reader.error(node.find("run")->value.place, "there is no command");
  const Node& how = expect->value;
  if (ends && how.find("exit") == nullptr && how.find("cause") == nullptr)
    reader.error(expect->value.place, "\"exit\" or \"cause\" is required");
}

/// What an overlay writes to changes below every other one that has it too, which the kernel calls
/// undefined.
void check_apart_from(Reader& reader, const Node& node, const Mount& written,
                      const std::string& target, const Mount& other) {
  std::vector<std::string> layers = other.lower;
  layers.insert(layers.end(), {other.upper, other.work});
  for (const std::string_view key : {"upper", "work"}) {
    const std::string& path = key == "upper" ? written.upper : written.work;
    for (const std::string& layer : layers) {
      if (path.empty() || layer.empty()) continue;
      if (!is_within(path, layer) && !is_within(layer, path)) continue;
      refuse_at(reader, node, key,
                "is written to, and so may not be or hold a directory of another overlay, or lie "
                "in one: the overlay at " +
                    in_quotes(target) + " has " + in_quotes(layer));
      break;
    }
  }
}

void check_overlays_apart(Reader& reader, const Node& mounts, const Filesystem& filesystem) {
  const auto writes = [](const Mount& mount) {
    return mount.type == MountType::kOverlay && !mount.readonly && !mount.upper.empty();
  };
  const Reader::Scope outer(reader, "mounts");
  for (const auto& [target, written] : filesystem.mounts) {
    const Member* member = mounts.find(target);
    if (member == nullptr || !writes(written)) continue;
    const Reader::Scope inner(reader, target);
    for (const auto& [other_target, other] : filesystem.mounts) {
      // Of two that write the second is told.
      const bool told = writes(other) && other_target >= target;
      if (other.type != MountType::kOverlay || other_target == target || told) continue;
      check_apart_from(reader, member->value, written, other_target, other);
    }
  }
}

void check_whole(Reader& reader, const Node& node, Filesystem& filesystem) {
  const Member* mounts = node.find("mounts");
  if (mounts != nullptr) check_overlays_apart(reader, mounts->value, filesystem);
  const Member* root = mounts == nullptr ? nullptr : mounts->value.find("/");
  const auto mount = filesystem.mounts.find("/");
  if (root == nullptr || mount == filesystem.mounts.end()) return;
  if (case_of(root->value, mount->second) == kNever || mount->second.type == MountType::kBind) {
    return;
  }
  const Reader::Scope outer(reader, "mounts");
  const Reader::Scope inner(reader, "/");
  reader.error(root->key_place, "only a bind can be mounted at \"/\"");
}

void check_whole(Reader& reader, const Node& node, Namespaces& spaces) {
  const Member* offsets = node.find("time_offsets");
  const bool any = spaces.time_offsets.monotonic || spaces.time_offsets.boottime;
  if (offsets == nullptr || !any || spaces.time == NamespaceMode::kNew) return;
  const Reader::Scope scope(reader, "time_offsets");
  const bool joined = spaces.time == NamespaceMode::kJoin;
  reader.error(offsets->key_place,
               std::string(joined ? "clocks of a namespace that is joined" : "the host's clocks") +
                   " cannot be moved; make \"time\" \"new\"");
}

/// A mqueue file system shows the queues of the IPC namespace that mounts it, which takes to own
/// it.
void check_queues(Reader& reader, const Node& node, const Policy& policy) {
  if (policy.namespaces.ipc == NamespaceMode::kNew) return;
  for (const auto& [target, mount] : policy.filesystem.mounts) {
    if (mount.type != MountType::kMqueue) continue;
    const Node& mounts = node.find("filesystem")->value.find("mounts")->value;
    const Reader::Scope outer(reader, "filesystem");
    const Reader::Scope middle(reader, "mounts");
    const Reader::Scope inner(reader, target);
    const bool joined = policy.namespaces.ipc == NamespaceMode::kJoin;
    refuse_at(reader, mounts.find(target)->value, "type",
              std::string(joined ? "would be those of the namespace of namespaces.ipc ("
                                 : "would be the host's queues, because namespaces.ipc is "
                                   "\"shared\" (") +
                  reader.text_of(node.find("namespaces")->value.find("ipc")->value.place) +
                  "); make it \"new\" or remove the mount");
  }
}

void check_whole(Reader& reader, const Node& node, Policy& policy) {
  check_queues(reader, node, policy);
  if (!policy.identity.hostname || policy.namespaces.uts == NamespaceMode::kNew) return;
  const Member& hostname = *node.find("identity")->value.find("hostname");
  const Member& uts = *node.find("namespaces")->value.find("uts");
  const Reader::Scope outer(reader, "identity");
  const Reader::Scope inner(reader, "hostname");
  const bool joined = policy.namespaces.uts == NamespaceMode::kJoin;
  reader.error(hostname.value.place,
               std::string("would rename ") +
                   (joined ? "all that is in the namespace of namespaces.uts ("
                           : "the host, because namespaces.uts is \"shared\" (") +
                   reader.text_of(uts.value.place) + "); make it \"new\" or remove the host name");
}

}  // namespace

template <class T>
bool Section<T>::read(Reader& reader, const Node& node, T& out) {
  if (node.kind != Node::Kind::kObject) {
    return reader.expected(node, "an object such as " + std::string(Fields<T>::kExample));
  }
  for (const Member& member : node.members) read_member(reader, member, out);
  if (!reader.merged()) return true;
  const Cases cases = case_of(node, out);
  std::apply([&](const auto&... entries) { (check_case<T>(reader, node, entries, cases), ...); },
             Fields<T>::kTable);
  check_whole(reader, node, out);
  return true;
}

bool RuleForm::read(Reader& reader, const Node& node, SyscallRule& out) {
  if (node.kind == Node::Kind::kString) return ActionForm::read(reader, node, out.action);
  if (node.kind != Node::Kind::kObject) {
    return reader.expected(node, "an action such as \"EPERM\", or an object such as " +
                                     std::string(Fields<SyscallRule>::kExample));
  }
  return Section<SyscallRule>::read(reader, node, out);
}

bool ExpectationForm::read(Reader& reader, const Node& node, Expectation& out) {
  if (node.kind == Node::Kind::kObject) return Section<Expectation>::read(reader, node, out);
  constexpr std::array<std::string_view, 2> kWords = {"denied", "allowed"};
  const bool word = node.kind == Node::Kind::kString;
  if (!word || (node.text != kWords[0] && node.text != kWords[1]))
    return word ? refuse_choice(reader, node, kWords)
                : reader.expected(node, "\"denied\", \"allowed\", or an object such as " +
                                            std::string(Fields<Expectation>::kExample));
  using Kind = Expectation::Kind;
  out.kind = node.text == kWords[0] ? Kind::kDenied : Kind::kAllowed;
  return true;
}

Policy decode(const Node& tree, Pass pass, const Sources& sources, Findings& findings) {
  Reader reader(pass, sources, findings);
  Policy policy;
  Section<Policy>::read(reader, tree, policy);
  policy.origins = reader.take_origins();
  return policy;
}

std::map<std::string, Variable> decode_variables(const Node& vars, Pass pass,
                                                 const Sources& sources, Findings& findings) {
  std::map<std::string, Variable> variables;
  if (pass == Pass::kMerged && vars.kind == Node::Kind::kNull) return variables;
  Reader reader(pass, sources, findings);
  const Reader::Scope scope(reader, "vars", R"({"work": {"type": "path"}})");
  MapOf<VariableName, Section<Variable>>::read(reader, vars, variables);
  return variables;
}

void normalise_targets(Node& tree, const Sources& sources, Findings& findings) {
  Member* filesystem = tree.find("filesystem");
  if (filesystem == nullptr) return;
  for (const std::string_view name : {"hide", "mask", "mounts"}) {
    Member* map = filesystem->value.find(name);
    if (map == nullptr || map->value.kind != Node::Kind::kObject) continue;
    for (Member& member : map->value.members) {
      if (Parsed<std::string> path = normalise_path(member.key)) member.key = std::move(*path);
    }
    const std::string path = member_path("filesystem", name);
    for (const DuplicateMember& duplicate : sort_members(map->value)) {
      findings.push_back(
          {duplicate.member.key_place, member_path(path, duplicate.member.key),
           "the same target twice; first at " + locate(sources, duplicate.first).text()});
    }
  }
}

}  // namespace belljar::policy
