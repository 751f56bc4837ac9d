// What decoders share: where they are, what they found wrong, and which text set what.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policy/json_tree.hpp"
#include "policy/policy.hpp"

namespace belljar::policy {

/// One text of a load: a file, a preset, a text from memory, or a setting of the command line.
struct Source {
  std::string label;
  int rank = 0;  ///< Position in the stack of layers, lowest first.
};

using Sources = std::vector<Source>;

[[nodiscard]] Location locate(const Sources& sources, const Place& place);

/// A text with more errors than this is not a policy; the rest is not worth the memory.
inline constexpr std::size_t kMostFindings = 1000;

/// Why a tree is read.
enum class Pass {
  kLayer,  ///< One layer by itself, which may be incomplete: only what is there is checked, so that
           ///< a mistake counts even when a higher layer replaces it.
  kMerged,  ///< The effective policy: what must be there, what fits together, and origins.
};

/// Walks along with the decoders.
class Reader {
 public:
  Reader(Pass pass, const Sources& sources, Findings& findings)
      : pass_(pass), sources_(sources), findings_(findings) {}

  [[nodiscard]] bool merged() const { return pass_ == Pass::kMerged; }

  /// Adds an error about the value at the current path. Returns false, for `return
  /// reader.error(...)`.
  bool error(const Place& place, std::string message);

  /// `expected WHAT, got the number 5`.
  bool expected(const Node& node, std::string_view what);

  /// Remembers that the value at the current path was set at `place` (merged pass only).
  void set_origin(const Place& place);

  [[nodiscard]] std::map<std::string, Location> take_origins() { return std::move(origins_); }

  /// "agent.json:14:9", for a message about one place that names another.
  [[nodiscard]] std::string text_of(const Place& place) const;

  /// The example of the field that is being read, for messages about its shape.
  [[nodiscard]] std::string_view example() const { return example_; }

  /// Extends the current path for as long as it lives.
  class Scope {
   public:
    Scope(Reader& reader, std::string_view key, std::string_view example = {});
    Scope(Reader& reader, std::size_t index);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Reader& reader_;
    std::size_t length_;
    std::string_view example_;
  };

 private:
  Pass pass_;
  const Sources& sources_;
  Findings& findings_;
  std::map<std::string, Location> origins_;
  std::string path_;
  std::string_view example_;
};

}  // namespace belljar::policy
