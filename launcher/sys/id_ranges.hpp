// Subordinate ids (man 5 subuid): who may map which, and the two programs that do it for those who
// have no privileges of their own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::sys {

struct IdRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const IdRange&) const = default;
};

/// How the tables may name `uid`: by number, and by each name that `passwd` has for it. (The name
/// service is not asked: a static program has none.)
[[nodiscard]] std::vector<std::string> owner_names(std::string_view passwd, uid_t uid);

/// The ranges that `table`, the text of /etc/subuid or /etc/subgid, gives to any of `owners`, in
/// its order. A line that is not OWNER:FIRST:COUNT, or leaves the ids that there are, gives
/// nothing.
[[nodiscard]] std::vector<IdRange> ranges_of(std::string_view table,
                                             const std::vector<std::string>& owners);

/// One of /usr/bin/newuidmap and newgidmap, or of the places where other distributions have them:
/// never by PATH, and only a program that nobody but root can have put there.
[[nodiscard]] Result<UniqueFd> open_id_helper(const std::string& name);

/// What is heard while one of them runs, which may take a directory service's time.
struct Interruption {
  int descriptor = -1;
  std::function<bool()> ends;  ///< Called when that is readable; true: do not wait any longer.
};

/// Runs it on the process `pid`, with `lines` of inside, outside and count, and an environment of
/// its own. What it complains of is in the error, which is EINTR when an interruption has ended it.
[[nodiscard]] Status run_id_helper(const std::string& name, pid_t pid,
                                   const std::vector<std::uint32_t>& lines,
                                   const Interruption& interruption);

}  // namespace belljar::sys
