#include "launcher/seccomp/names.hpp"

#include <seccomp.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
// 32-bit ones have socketcall and 64-bit arguments in two halves, s390x swaps clone's arguments.
#error "table.json and the filters were checked on x86-64 and aarch64 only"
#endif

namespace belljar::launcher {

namespace {

struct NamedCall {
  std::string_view name;
  int number;
};

// Calls that libseccomp 2.5 has no names for. All architectures share the numbers from 424 on
// (Linux, scripts/syscall.tbl); the first two are in arch/x86/entry/syscalls/syscall_64.tbl.
constexpr NamedCall kNewCalls[] = {
#ifdef __x86_64__
    {"uretprobe", 335},
    {"uprobe", 336},
#endif
    {"set_mempolicy_home_node", 450},
    {"cachestat", 451},
    {"fchmodat2", 452},
    {"map_shadow_stack", 453},
    {"futex_wake", 454},
    {"futex_wait", 455},
    {"futex_requeue", 456},
    {"statmount", 457},
    {"listmount", 458},
    {"lsm_get_self_attr", 459},
    {"lsm_set_self_attr", 460},
    {"lsm_list_modules", 461},
    {"mseal", 462},
    {"setxattrat", 463},
    {"getxattrat", 464},
    {"listxattrat", 465},
    {"removexattrat", 466},
    {"open_tree_attr", 467},
    {"file_getattr", 468},
    {"file_setattr", 469},
};

// Above every number that either table knows.
constexpr int kNumberLimit = 600;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

// Up to three names, nearest first. A third of the letters may differ, as more is no misspelling.
std::vector<std::string> nearest_names(std::string_view name) {
  std::vector<std::pair<std::size_t, std::string>> near;
  const std::size_t limit = std::max<std::size_t>(1, name.size() / 3);
  for (int number = 0; number < kNumberLimit; ++number) {
    std::string candidate = syscall_name(number);
    if (candidate.empty()) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance <= limit) near.emplace_back(distance, std::move(candidate));
  }
  std::sort(near.begin(), near.end());
  if (near.size() > 3) near.resize(3);
  std::vector<std::string> names;
  names.reserve(near.size());
  for (auto& [distance, candidate] : near) names.push_back(std::move(candidate));
  return names;
}

std::string unknown_name_text(std::string_view name) {
  std::string text = "unknown system call \"" + std::string(name) + "\"";
  const std::vector<std::string> candidates = nearest_names(name);
  for (const std::string& candidate : candidates)
    text.append(&candidate == &candidates.front() ? "; did you mean " : " or ")
        .append("\"" + candidate + "\"");
  return candidates.empty() ? text : text + "?";
}

}  // namespace

Result<int> resolve_syscall(std::string_view name) {
  const auto* known = std::find_if(std::begin(kNewCalls), std::end(kNewCalls),
                                   [&](const NamedCall& call) { return call.name == name; });
  if (known != std::end(kNewCalls)) return known->number;
  // libseccomp gives calls of other architectures negative numbers, and -1 to names it never heard.
  // It reads up to a null byte, after which a name could go on.
  const bool whole = name.find('\0') == std::string_view::npos;
  const int number =
      whole ? seccomp_syscall_resolve_name_arch(seccomp_arch_native(), std::string(name).c_str())
            : __NR_SCMP_ERROR;
  if (number >= 0) return number;
  if (number != __NR_SCMP_ERROR)
    return fail({ErrorKind::kUnavailable,
                 0,
                 "system call \"" + std::string(name) + "\" does not exist on this architecture",
                 {},
                 {}});
  return fail({ErrorKind::kInvalid,
               0,
               unknown_name_text(name),
               {},
               "use the name in `man 2 syscalls`, in lower case"});
}

std::string syscall_name(int number) {
  const auto* known = std::find_if(std::begin(kNewCalls), std::end(kNewCalls),
                                   [&](const NamedCall& call) { return call.number == number; });
  if (known != std::end(kNewCalls)) return std::string(known->name);
  char* owned = seccomp_syscall_resolve_num_arch(seccomp_arch_native(), number);
  std::string name = owned == nullptr ? "" : owned;
  std::free(owned);
  return name;
}

}  // namespace belljar::launcher
