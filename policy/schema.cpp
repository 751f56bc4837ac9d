#include "policy/schema.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "policy/fields.hpp"
#include "policy/names.hpp"

namespace belljar::policy {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "^/(?!(.*/)?\\.\\.(/|$))";
constexpr const char* kSize = "^[0-9]+(B|KiB|MiB|GiB|TiB)$";
constexpr const char* kSizeAboveZero = "^0*[1-9][0-9]*(B|KiB|MiB|GiB|TiB)$";
constexpr const char* kTime = "^[0-9]+(ms|s|m|h|d)$";
constexpr const char* kTimeAboveZero = "^0*[1-9][0-9]*(ms|s|m|h|d)$";

Json matching(const char* pattern) { return {{"type", "string"}, {"pattern", pattern}}; }

Json whole(std::uint64_t least, std::uint64_t most) {
  return {{"type", "integer"}, {"minimum", least}, {"maximum", most}};
}

Json one_of(std::vector<std::string_view> names) { return {{"enum", std::move(names)}}; }

Json reference() { return {{"$ref", "#/$defs/reference"}}; }

Json any(std::vector<Json> choices) {
  // A choice of choices is flat, for the people who read it.
  Json flat = Json::array();
  for (Json& choice : choices) {
    if (choice.size() == 1 && choice.contains("anyOf")) {
      for (Json& inner : choice["anyOf"]) flat.push_back(std::move(inner));
    } else {
      flat.push_back(std::move(choice));
    }
  }
  return {{"anyOf", std::move(flat)}};
}

Json or_null(Json schema) { return any({std::move(schema), {{"type", "null"}}}); }

/// The schema of a form. A form without one does not compile.
Json schema_of(Text) { return {{"type", "string"}}; }
Json schema_of(Reason) { return {{"type", "string"}}; }
Json schema_of(VariableText) { return any({{{"type", "string"}}, whole(0, UINT64_MAX)}); }
Json schema_of(Boolean) { return {{"type", "boolean"}}; }
Json schema_of(IdNumber) { return any({whole(0, 4294967294), reference()}); }
Json schema_of(IdCount) { return any({whole(1, 4294967294), reference()}); }
Json schema_of(IdForm) {
  return any({one_of({"caller", "pool"}), whole(0, 4294967294), reference()});
}
Json schema_of(Hostname) { return any({matching("^[A-Za-z0-9.-]{1,64}$"), reference()}); }
Json schema_of(Umask) { return any({matching("^0?[0-7]{1,3}$"), reference()}); }
Json schema_of(FileMode) { return any({matching("^[0-7]{1,4}$"), reference()}); }
Json schema_of(MountSize) { return any({matching(kSizeAboveZero), reference()}); }
Json schema_of(InodeCount) { return any({whole(1, INT64_MAX), reference()}); }
Json schema_of(TimeLimit) { return any({matching(kTimeAboveZero), reference()}); }
template <std::uint64_t least>
Json schema_of(SizeAbove<least>) {
  return any({matching(least == 0 ? kSize : kSizeAboveZero), reference()});
}
Json schema_of(ProcessCount) { return any({whole(1, 4194304), reference()}); }
Json schema_of(Processors) {
  return any({{{"type", "number"}, {"minimum", 0.01}, {"maximum", 8192}}, reference()});
}
Json schema_of(SignedDuration) { return any({matching("^-?[0-9]+(ms|s|m|h|d)$"), reference()}); }
Json schema_of(PortNumber) { return any({whole(0, 65535), reference()}); }
Json schema_of(EgressPort) { return any({whole(1, 65535), reference()}); }
Json schema_of(HostPath) { return any({matching(kPath), reference()}); }
Json schema_of(LowerDirectories) {
  return {{"type", "array"},
          {"items", schema_of(HostPath{})},
          {"minItems", 1},
          {"maxItems", kMostLowerDirectories},
          {"uniqueItems", true}};
}
Json schema_of(MountSource) { return {{"type", "string"}, {"minLength", 1}}; }
Json schema_of(WorkspacePath) { return any({one_of({"."}), matching(kPath), reference()}); }
Json schema_of(HomeForm) {
  return any({one_of({"none", "workspace", "private"}), matching(kPath), reference()});
}
Json schema_of(CapabilityName) { return any({matching("^[A-Za-z_]+$"), reference()}); }
Json schema_of(EnvironmentGlob) { return any({matching("^[A-Za-z0-9_*?]+$"), reference()}); }
Json schema_of(DescriptorNumber) { return any({whole(3, 1048575), reference()}); }
Json schema_of(AttemptForm) {
  return any({matching("^((read|write|exec) /|connect .+:[0-9]+$)"), reference()});
}
Json schema_of(ExitCode) { return any({whole(0, 255), reference()}); }
Json schema_of(CauseForm) { return any({one_of({kCauses.begin(), kCauses.end()}), reference()}); }
Json schema_of(ActionForm) { return any({matching("^(allow|log|kill|E[A-Z0-9]+)$"), reference()}); }

Json schema_of(Alternatives) {
  const Json value = any({whole(0, UINT64_MAX), matching("^(0x)?[A-Za-z0-9_]+$"), reference()});
  Json test{{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  for (const char* key : {"==", "!=", "<", "<=", ">", ">=", "mask"})
    test["properties"][key] = value;
  return {{"type", "array"},
          {"minItems", 1},
          {"items",
           {{"type", "object"},
            {"minProperties", 1},
            {"propertyNames", {{"pattern", "^arg[0-5]$"}}},
            {"additionalProperties", test}}}};
}

Json schema_of(RlimitUnit unit) {
  switch (unit) {
    case RlimitUnit::kBytes:
      return matching(kSize);
    case RlimitUnit::kSeconds:
    case RlimitUnit::kMicroseconds:
      return matching(kTime);
    case RlimitUnit::kCount:
      break;
  }
  return whole(0, UINT64_MAX - 1);
}

Json described(std::string_view description, std::string_view example, Json schema) {
  Json out{{"description", description}};
  if (!example.empty()) out["examples"] = Json::array({Json::parse(example)});
  out.update(schema);
  return out;
}

/// What editors say of a limit (man 2 getrlimit).
struct RlimitWords {
  std::string_view name;
  std::string_view description;
  std::string_view example;
};
constexpr RlimitWords kRlimitWords[] = {
    {"as", "Most address space, mapped or not.", R"("2GiB")"},
    {"core", "Largest core dump.", R"("0B")"},
    {"cpu", "Most processor time, in whole seconds; the end is `cpu_time`.", R"("60s")"},
    {"data", "Most private writable memory: heap, stacks and anonymous maps.", R"("1GiB")"},
    {"fsize", "Largest file that can be written; the end is `file_size`.", R"("100MiB")"},
    {"memlock", "Most memory that can be kept from being swapped.", R"("64KiB")"},
    {"msgqueue", "Most bytes in POSIX message queues, of all processes of the uid.", R"("0B")"},
    {"nice", "20 minus the lowest nice value that can be taken.", "0"},
    {"nofile", "One more than the highest descriptor.", "256"},
    {"nproc", "Most processes and threads of the uid. Refused for root, whom it does not bind.",
     "64"},
    {"rtprio", "Highest real-time priority.", "0"},
    {"rttime", "Most processor time of a real-time process without a blocking call.", R"("200ms")"},
    {"sigpending", "Most signals that can be queued for the uid.", "1024"},
    {"stack", "Largest stack of the first thread.", R"("8MiB")"},
};

Json schema_of(Rlimits) {
  Json properties = Json::object();
  for (const RlimitName& name : rlimit_names()) {
    const auto* words = std::find_if(std::begin(kRlimitWords), std::end(kRlimitWords),
                                     [&](const RlimitWords& w) { return w.name == name.name; });
    Json schema = or_null(any({one_of({"unlimited"}), schema_of(name.unit), reference()}));
    properties[std::string(name.name)] =
        words == std::end(kRlimitWords)
            ? std::move(schema)
            : described(words->description, words->example, std::move(schema));
  }
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

template <class E>
Json schema_of(OneOf<E>) {
  std::vector<std::string_view> names;
  for (const Choice<E>& choice : kChoices<E>) names.push_back(choice.name);
  return any({one_of(std::move(names)), reference()});
}

template <class E>
Json schema_of(OneOfOrPath<E>) {
  return any({matching(kPath), schema_of(OneOf<E>{})});
}

template <class T>
Json schema_of(Section<T>);
Json schema_of(RuleForm);
Json schema_of(ExpectationForm);

template <class Form>
Json schema_of(ListOf<Form>) {
  return {{"type", "array"}, {"items", schema_of(Form{})}};
}
template <class Form>
Json schema_of(SetOf<Form>) {
  return {{"type", "array"}, {"items", schema_of(Form{})}, {"uniqueItems", true}};
}

Json key_schema(MountTarget) { return any({{{"pattern", kPath}}, reference()}); }
Json key_schema(MaskTarget) {
  return any({{{"pattern", "^/(?!(.*/)?\\.\\.(/|$))[./]*[^./]"}}, reference()});
}
Json key_schema(HiddenDirectory) {
  return any({{{"pattern", "^(@workspace|@home|/(?!\\.\\.?(/|$))[^/]+/?)$"}}, reference()});
}
Json key_schema(AddressRange) {
  return {{"pattern", "^([0-9]{1,3}[.]){3}[0-9]{1,3}(/([0-9]|[12][0-9]|3[01]))?$"}};
}
Json key_schema(PrivateRange) { return key_schema(AddressRange{}); }
Json key_schema(OutsideAddress) {
  return {{"pattern", "^(/.+|127([.][0-9]{1,3}){3}:[1-9][0-9]{0,4})$"}};
}
Json key_schema(SyscallName) { return {{"pattern", "^[a-z0-9_]+$"}}; }
Json key_schema(EnvironmentName) { return {{"pattern", "^[^=]+$"}}; }
Json key_schema(VariableName) { return {{"pattern", "^[A-Za-z0-9_]{1,64}$"}}; }

template <class Key, class Form>
Json schema_of(MapOf<Key, Form>) {
  return {{"type", "object"},
          {"propertyNames", key_schema(Key{})},
          {"additionalProperties", or_null(schema_of(Form{}))}};
}

Json schema_of_layer_key(std::string_view key) {
  if (key == "version") return {{"const", 1}};
  if (key == "extends") {
    return or_null(
        {{"type", "array"}, {"items", {{"type", "string"}, {"minLength", 1}}}, {"maxItems", 16}});
  }
  if (key == "final") return or_null({{"type", "array"}, {"items", {{"type", "string"}}}});
  if (key == "vars") return or_null(schema_of(MapOf<VariableName, Section<Variable>>{}));
  return Json::object();
}

template <class Owner, class Value, class Form>
void add_property(Json& properties, const Field<Owner, Value, Form>& field) {
  properties[std::string(field.key)] =
      described(field.description, field.example, or_null(schema_of(field.form)));
}
void add_property(Json& properties, const OfLayer& key) {
  properties[std::string(key.key)] =
      described(key.description, key.example, schema_of_layer_key(key.key));
}
void add_property(Json&, const Reserved&) {}

template <class T>
void add_cases(Json&) {}

/// For each type: what does not apply to it may only be removed.
template <class T, class E>
void add_cases_by_type(Json& schema) {
  for (const Choice<E>& choice : kChoices<E>) {
    Json others = Json::object();
    const auto look = [&](const auto& entry) {
      if constexpr (requires { entry.applies; }) {
        if ((entry.applies >> static_cast<unsigned>(choice.value) & 1U) == 0) {
          others[std::string(entry.key)] = {{"type", "null"}};
        }
      }
    };
    std::apply([&look](const auto&... entries) { (look(entries), ...); }, Fields<T>::kTable);
    const Json condition{{"properties", {{"type", {{"const", choice.name}}}}},
                         {"required", {"type"}}};
    schema["allOf"].push_back({{"if", condition}, {"then", {{"properties", others}}}});
  }
}
template <>
void add_cases<Mount>(Json& schema) {
  add_cases_by_type<Mount, MountType>(schema);
}
template <>
void add_cases<Variable>(Json& schema) {
  add_cases_by_type<Variable, VariableType>(schema);
}

template <class T>
Json schema_of(Section<T>) {
  Json properties = Json::object();
  std::apply([&](const auto&... entries) { (add_property(properties, entries), ...); },
             Fields<T>::kTable);
  Json schema{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  add_cases<T>(schema);
  return schema;
}

Json schema_of(ExpectationForm) {
  return any({one_of({"denied", "allowed"}), reference(), schema_of(Section<Expectation>{})});
}

Json schema_of(RuleForm) {
  return any({schema_of(ActionForm{}), schema_of(Section<SyscallRule>{})});
}

}  // namespace

std::string schema_text() {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "Belljar policy, version 1"},
              {"description", "What a sandboxed command may see and do."}};
  schema.update(schema_of(Section<Policy>{}));
  schema["required"] = {"version"};
  schema["patternProperties"] = {{"^x-", Json::object()}};
  schema["$defs"]["reference"] = {{"description", "A variable that `vars` declares."},
                                  {"type", "string"},
                                  {"pattern", "\\$\\{[A-Za-z0-9_]+\\}"}};
  return schema.dump(2) + "\n";
}

}  // namespace belljar::policy
