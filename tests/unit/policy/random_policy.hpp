// Random policies, made by walking the table of fields: a field that is added is in them, and a
// form without values here does not compile.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "policy/fields.hpp"

namespace belljar::policy::testing {

using nlohmann::json;

class RandomPolicy {
 public:
  explicit RandomPolicy(unsigned seed) : random_(seed) {}

  /// One of so many.
  bool once_in(unsigned many) { return random_() % many == 0; }
  std::size_t below(std::size_t count) { return random_() % count; }

  /// A policy in which each field is there once in `many` times. It may still be refused: some
  /// fields need others.
  json policy(unsigned many) {
    many_ = many;
    json made = section(static_cast<Policy*>(nullptr));
    made["version"] = 1;
    return made;
  }

  /// What a layer above changes: a few fields, some of which it removes.
  json change() {
    many_ = 6;
    json made = json::object();
    while (made.empty()) made = section(static_cast<Policy*>(nullptr));
    remove_some(made);
    made["version"] = 1;
    return made;
  }

  /// A change that leaves most as it is: in one section of `low` single members get another value,
  /// come or go.
  json variation(const json& low) {
    many_ = 2;
    json made = {{"version", 1}};
    const auto mounts = low.value("/filesystem/mounts"_json_pointer, json::object());
    if (!mounts.empty() && once_in(2)) {
      const auto one = std::next(mounts.begin(), static_cast<int>(below(mounts.size())));
      made["filesystem"]["mounts"][one.key()] = vary(*one, mount_of((*one)["type"]));
      return made;
    }
    const json other = section(static_cast<Policy*>(nullptr));
    std::vector<std::string> both;
    for (const auto& [key, value] : low.items())
      if (value.is_object() && other.contains(key)) both.push_back(key);
    if (both.empty()) return made;
    const std::string& key = both[below(both.size())];
    made[key] = vary(low[key], other[key]);
    return made;
  }

 private:
  json vary(const json& low, const json& other) {
    json made = json::object();
    for (const auto& [key, value] : other.items()) {
      const auto known = low.find(key);
      if (known == low.end() || !known->is_object() || !value.is_object()) {
        if (once_in(4)) made[key] = value;
      } else if (!known->contains("type")) {
        if (json below = vary(*known, value); !below.empty()) made[key] = std::move(below);
      }
    }
    for (const auto& [key, value] : low.items())
      if (!other.contains(key) && once_in(6)) made[key] = nullptr;
    return made;
  }

  json mount_of(const std::string& type) {
    for (const Choice<MountType>& choice : kChoices<MountType>)
      if (choice.name == type) wanted_ = choice;
    json made = section(static_cast<Mount*>(nullptr));
    wanted_.reset();
    return made;
  }

  /// Few values of each form, so that two policies are often comparable. Written as JSON.
  json one(std::initializer_list<std::string_view> texts) {
    return json::parse(texts.begin()[below(texts.size())]);
  }

  void remove_some(json& object) {
    for (auto& [key, value] : object.items()) {
      if (once_in(5))
        value = nullptr;
      else if (value.is_object())
        remove_some(value);
    }
  }

  template <class E>
  json value(const OneOf<E>&) {
    return kChoices<E>[below(kChoices<E>.size())].name;
  }
  template <class E>
  json value(const OneOfOrPath<E>&) {
    return once_in(4) ? one({R"("/run/ns/a")", R"("/run/ns/b")"}) : value(OneOf<E>{});
  }
  template <std::uint64_t least>
  json value(const SizeAbove<least>&) {
    return one({R"("8MiB")", R"("1GiB")"});
  }
  template <class Form>
  json value(const ListOf<Form>& list) {
    return several(static_cast<const Form*>(nullptr), list);
  }
  template <class Form>
  json value(const SetOf<Form>& list) {
    return several(static_cast<const Form*>(nullptr), list);
  }
  template <class Form, class List>
  json several(const Form*, const List&) {
    json made = json::array();
    for (int i = 0; i < 3; ++i) {
      json next = value(Form{});
      if (once_in(2) && std::find(made.begin(), made.end(), next) == made.end())
        made.push_back(std::move(next));
    }
    return made;
  }
  template <class Key, class Form>
  json value(const MapOf<Key, Form>&) {
    json made = json::object();
    for (int i = 0; i < 4; ++i)
      if (once_in(2)) made[key(Key{}).template get<std::string>()] = value(Form{});
    return made;
  }
  template <class T>
  json value(const Section<T>&) {
    return section(static_cast<T*>(nullptr));
  }

  json value(const Text&) { return one({R"("")", R"("a")", R"("b $${c}")"}); }
  json value(const VariableText&) { return one({R"("a")", "5"}); }
  json value(const Boolean&) { return one({"true", "false"}); }
  json value(const IdForm&) { return one({R"("caller")", "1000", "1001"}); }
  json value(const IdNumber&) { return one({"1000", "1001"}); }
  json value(const IdCount&) { return one({"10", "65536"}); }
  json value(const Hostname&) { return one({R"("one")", R"("two")"}); }
  json value(const Umask&) { return one({R"("022")", R"("027")", R"("077")"}); }
  json value(const FileMode&) { return one({R"("0755")", R"("0700")"}); }
  json value(const MountSize&) { return one({R"("1MiB")", R"("64MiB")"}); }
  json value(const InodeCount&) { return one({"100", "1000"}); }
  json value(const ProcessCount&) { return one({"16", "64"}); }
  json value(const Processors&) { return one({"0.5", "2"}); }
  json value(const TimeLimit&) { return one({R"("1s")", R"("9s")"}); }
  json value(const SignedDuration&) { return one({R"("1h")", R"("-30s")"}); }
  json value(const MountSource&) { return one({R"("/a")", R"("/b")"}); }
  json value(const HostPath&) { return one({R"("/u")", R"("/v")"}); }
  json value(const LowerDirectories&) {
    return one({R"(["/a"])", R"(["/a","/b"])", R"(["/b","/a"])"});
  }
  json value(const WorkspacePath&) { return one({R"("/w")", R"(".")"}); }
  json value(const HomeForm&) { return one({R"("none")", R"("private")", R"("/h")"}); }
  json value(const CapabilityName&) { return one({R"("NET_RAW")", R"("CHOWN")", R"("KILL")"}); }
  json value(const EnvironmentGlob&) { return one({R"("A")", R"("B")", R"("A*")", R"("*")"}); }
  json value(const DescriptorNumber&) { return one({"3", "4", "5"}); }
  json value(const PortNumber&) { return one({"80", "443", "8080"}); }
  json value(const EgressPort&) { return one({"80", "443"}); }
  json value(const AttemptForm&) { return one({R"("read /a")", R"("connect 192.0.2.1:80")"}); }
  json value(const ExitCode&) { return one({"0", "7"}); }
  json value(const CauseForm&) { return one({R"("exited")", R"("memory")"}); }
  json value(const ActionForm&) {
    return one({R"("allow")", R"("EPERM")", R"("kill")", R"("log")"});
  }
  json value(const Alternatives&) {
    return one({R"([{"arg0":{"==":1}}])", R"([{"arg0":{"==":1}},{"arg1":{">":2}}])"});
  }
  json value(const Rlimits&) {
    json made = json::object();
    if (once_in(2)) made["nofile"] = one({"64", "256", R"("unlimited")"});
    if (once_in(2)) made["as"] = one({R"("1GiB")", R"("2GiB")"});
    if (once_in(2)) made["cpu"] = one({R"("10s")", R"("60s")"});
    return made;
  }
  json value(const Reason&) { return one({R"("x")", R"("y")"}); }
  json value(const RuleForm&) {
    return one({R"("allow")", R"("EPERM")", R"("kill")", R"("log")",
                R"({"action":"allow","when":[{"arg0":{"==":1}}],"otherwise":"EPERM"})",
                R"({"action":"kill","when":[{"arg0":{"==":1}}],"otherwise":"allow"})"});
  }
  json value(const ExpectationForm&) { return one({R"("denied")", R"("allowed")"}); }

  json key(const MountTarget&) { return one({R"("/a")", R"("/a/b")", R"("/a/b/c")", R"("/d")"}); }
  json key(const MaskTarget&) { return one({R"("/a")", R"("/a/b")", R"("/d")"}); }
  json key(const HiddenDirectory&) { return one({R"("/a")", R"("/d")"}); }
  json key(const SyscallName&) { return one({R"("read")", R"("flock")", R"("ptrace")"}); }
  json key(const AddressRange&) {
    return one({R"("203.0.113.0/24")", R"("203.0.113.7")", R"("10.1.0.0/16")"});
  }
  json key(const PrivateRange&) { return one({R"("10.0.0.0/8")", R"("10.1.0.0/16")"}); }
  json key(const OutsideAddress&) { return one({R"("127.0.0.1:8080")", R"("/run/app.sock")"}); }
  json key(const EnvironmentName&) { return one({R"("A")", R"("AB")", R"("B")"}); }

  template <class T>
  json section(T* kind_of) {
    const Cases kind = choose(kind_of);
    json made = json::object();
    std::apply([&](const auto&... fields) { (add(made, fields, kind), ...); }, Fields<T>::kTable);
    mend(made, kind_of);
    return made;
  }
  template <class Owner, class Value, class Form>
  void add(json& made, const Field<Owner, Value, Form>& field, Cases kind) {
    if ((field.applies & kind) == 0) return;
    // Sections are there more often, so that what lies deep is not rare.
    const unsigned many = is_section(field.form) ? 2 : many_;
    if ((field.required & kind) != 0 || once_in(many))
      made[std::string(field.key)] = value(field.form);
  }
  template <class T>
  static constexpr bool is_section(const Section<T>&) {
    return true;
  }
  static constexpr bool is_section(const MapOf<MountTarget, Section<Mount>>&) { return true; }
  template <class Form>
  static constexpr bool is_section(const Form&) {
    return false;
  }
  void add(json&, const Reserved&, Cases) {}
  void add(json&, const OfLayer&, Cases) {}

  /// Which kind of an object is made: one bit, where there are kinds.
  template <class T>
  Cases choose(T*) {
    return kAlways;
  }
  Cases choose(Mount*) {
    type_ = wanted_.value_or(kChoices<MountType>[below(kChoices<MountType>.size())]);
    return mount_case(type_.value);
  }

  /// What the table does not say: members that need one another.
  template <class T>
  void mend(json&, T*) {}
  void mend(json& made, Mount*) {
    made["type"] = type_.name;
    if (made.contains("upper") || made.contains("work")) {
      made["upper"] = value(HostPath{});
      made["work"] = made["upper"].get<std::string>() + "-work";
      for (const char* of_memory : {"size", "inodes", "mode"}) made.erase(of_memory);
    }
    const bool bind = type_.value == MountType::kBind;
    if (!bind && made.contains("nodev")) made["nodev"] = true;
    if (!bind && type_.value != MountType::kTmpfs && made.contains("nosuid")) made["nosuid"] = true;
    const bool view = type_.value == MountType::kProc || type_.value == MountType::kMqueue;
    if (view && made.contains("noexec")) made["noexec"] = true;
  }
  void mend(json& made, PolicyTest*) {
    made.erase("run");
    made["try"] = value(AttemptForm{});
  }
  void mend(json& made, Namespaces*) {
    if (made.contains("time_offsets")) made["time"] = "new";
    for (const char* own : {"user", "mount", "pid"}) made.erase(own);
  }
  void mend(json& made, Identity*) {
    if (made.contains("inside_uid")) made.erase("ids");
  }

  std::mt19937 random_;
  unsigned many_ = 3;
  Choice<MountType> type_;
  std::optional<Choice<MountType>> wanted_;
};

}  // namespace belljar::policy::testing
