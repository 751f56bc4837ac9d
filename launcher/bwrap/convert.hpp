// Between bwrap's arguments and policies, both ways, as far as each can say what the other means.
#pragma once

#include <string>
#include <vector>

#include "launcher/bwrap/options.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher::bwrap {

struct Converted {
  std::string policy;                ///< JSON.
  std::vector<std::string> missing;  ///< What a policy cannot say, a line each.
};

/// The policy that arguments mean. Relative sources are `directory`'s; what is covered by a later
/// mount is left out.
[[nodiscard]] Converted to_policy(const Options& options, const std::string& directory,
                                  const ReadDescriptor& read);

struct Arguments {
  std::vector<std::string> words;
  std::vector<std::string> missing;  ///< Policy paths that bwrap has no option for.
};

/// The arguments that come closest to a policy.
[[nodiscard]] Arguments to_arguments(const policy::Policy& policy);

}  // namespace belljar::launcher::bwrap
