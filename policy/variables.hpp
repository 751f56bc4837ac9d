// Typed variables: declared under `vars`, given by --var, used as ${name} in texts.
//
// A reference is replaced in a tree that is parsed already, so that a value can be part of one
// string and never a key, a list or anything else of the policy's structure. Values are not
// expanded again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "policy/json_tree.hpp"
#include "policy/reader.hpp"
#include "policy/units.hpp"

namespace belljar::policy {

enum class VariableType { kPath, kSize, kDuration, kString, kEnum, kInt };

/// A declaration. Which members mean something depends on `type`; the parser refuses the others.
struct Variable {
  VariableType type = VariableType::kString;
  std::optional<std::string> default_value;
  std::vector<std::string> values;  ///< enum: what it can be.
  std::optional<std::string> min;   ///< size, duration, int: as written.
  std::optional<std::string> max;
  std::string description;
};

/// `text` as a value of `variable`, a path in its normal form; or what is wrong with it.
[[nodiscard]] Parsed<std::string> check_value(const Variable& variable, std::string_view text);

/// A value from the command line.
struct GivenVariable {
  std::string name;
  std::string value;
  Place place;
};

/// The variables of one load.
class Variables {
 public:
  Variables(const Sources& sources, Findings& findings) : sources_(sources), findings_(findings) {}

  /// Takes `vars` out of a layer, lowest layer first.
  void take(Node& tree);

  /// Takes no other value from now on: of all variables when `path` is "vars", of one when it is
  /// "vars.NAME", of none otherwise.
  void freeze(std::string_view path, const Place& place);

  /// After the last layer: decides every value. Names that are not declared are an error, unless a
  /// layer is missing that may declare them.
  void give(const std::vector<GivenVariable>& given, bool complete);

  /// Replaces the references in a layer. What refers to a variable without a value is left out; it
  /// is an error already.
  void replace_in(Node& tree);

  /// Replaces them in one text. Nothing when that cannot be done.
  [[nodiscard]] std::optional<std::string> replace_in_text(std::string_view text,
                                                           const Place& place,
                                                           std::string_view path);

  /// Reports the variables that nothing refers to.
  void report_unused();

 private:
  struct Value {
    VariableType type = VariableType::kString;
    std::optional<std::string> text;  ///< Absent: wrong or missing, which is an error already.
  };

  void report(const Place& place, std::string path, std::string message);
  [[nodiscard]] bool is_frozen(const std::string& name, const Place& place, std::string path);
  void check_redeclared(const Member& variable);
  void decide(const std::string& name, const Variable& variable, const Member& declaration);
  [[nodiscard]] const Value* find(std::string_view name, const Place& place, std::string_view path);
  [[nodiscard]] bool replace_in_node(Node& node, std::string& path);
  [[nodiscard]] bool replace_in_string(Node& node, std::string_view path);
  void replace_in_object(Node& node, std::string& path);
  void replace_in_array(Node& node, std::string& path);

  const Sources& sources_;
  Findings& findings_;
  Node declarations_;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, GivenVariable, std::less<>> given_;
  std::map<std::string, Place, std::less<>> frozen_;
  std::set<std::string, std::less<>> used_;
};

/// Writes "${" as "$${", so that an effective tree can be loaded again.
void escape_references(Node& tree);

}  // namespace belljar::policy
