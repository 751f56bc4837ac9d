// The one rule by which layers combine.
#pragma once

#include "policy/json_tree.hpp"

namespace belljar::policy {

/// Lays `upper` over `lower`: objects merge by key, scalars and arrays are replaced, null removes.
/// Every value keeps the place where it was written; an object that both have, that of the lower.
void merge(Node& lower, Node upper);

}  // namespace belljar::policy
