// From a tree to a Policy, by the table of fields.
#pragma once

#include <map>
#include <string>

#include "policy/json_tree.hpp"
#include "policy/policy.hpp"
#include "policy/reader.hpp"
#include "policy/variables.hpp"

namespace belljar::policy {

/// Decodes `tree`, adding to `findings` whatever is wrong with it. The result means something only
/// when nothing was, and in Pass::kMerged; it then has origins, but no canonical text or digest.
[[nodiscard]] Policy decode(const Node& tree, Pass pass, const Sources& sources,
                            Findings& findings);

/// Decodes the declarations under `vars`.
[[nodiscard]] std::map<std::string, Variable> decode_variables(const Node& vars, Pass pass,
                                                               const Sources& sources,
                                                               Findings& findings);

/// Writes the keys of path maps (`filesystem.mounts`, `mask`, `hide`) in their normal form, so that
/// layers that write "/tmp/" and "/tmp" merge. Two keys that become the same are a finding.
void normalise_targets(Node& tree, const Sources& sources, Findings& findings);

}  // namespace belljar::policy
