#include "launcher/controls/facts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "launcher/record.hpp"
#include "launcher/sys/proc.hpp"

namespace belljar::launcher {
namespace {

/// What the link says; empty, with errno set, when it cannot be read.
std::string link_text(int directory, const std::string& path) {
  std::array<char, 64> text{};
  const ssize_t got = readlinkat(directory, path.c_str(), text.data(), text.size());
  return got < 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(got));
}

}  // namespace

Seen compare(const std::string& what, const std::string& seen, const std::string& expected) {
  if (seen == expected) return holds();
  return differs(what + " is " + seen + ", not " + expected);
}

std::vector<Fact::Expected> other_namespace_than_ours(const Made& made, const char* kind,
                                                      std::string because) {
  const std::string ours = link_text(sys::proc_directory(), std::string("self/ns/") + kind);
  if (ours.empty()) return {};
  return {{ours, std::move(because), !requires_proc(made.policy)}};
}

Seen is_another_namespace(const std::string& ours) {
  const std::string kind = ours.substr(0, ours.find(':'));
  const std::string seen = link_text(AT_FDCWD, "/proc/self/ns/" + kind);
  if (seen.empty()) return unseen("/proc/self/ns/" + kind + ": " + errno_name(errno));
  return seen == ours ? differs("the " + kind + " namespace is that of belljar, " + ours) : holds();
}

bool requires_proc(const policy::Policy& policy) {
  const auto proc = policy.filesystem.mounts.find("/proc");
  return proc != policy.filesystem.mounts.end() && proc->second.type == policy::MountType::kProc &&
         proc->second.enforce == policy::Enforce::kRequire;
}

}  // namespace belljar::launcher
