#include "launcher/sys/session_credentials.hpp"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "launcher/sys/raw.hpp"

namespace belljar::sys {
namespace {

using CapabilityData = std::array<__user_cap_data_struct, 2>;

Status set_capabilities(std::uint64_t effective, std::uint64_t permitted) {
  const auto low = [](std::uint64_t set) { return static_cast<std::uint32_t>(set); };
  const CapabilityData data = {
      {{low(effective), low(permitted), 0}, {low(effective >> 32), low(permitted >> 32), 0}}};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  if (const long rc = raw(SYS_capset, &header, data.data()); rc < 0)
    return sys_failure(static_cast<int>(-rc), effective == 0 && permitted != 0
                                                  ? "put the launcher's capabilities down"
                                                  : "raise the launcher's capabilities");
  return {};
}

/// glibc's setresuid would change all threads; the kernel's changes the calling one.
Status set_effective(uid_t uid, gid_t gid, bool uid_first) {
  const auto set_uid = [uid] { return raw(SYS_setresuid, -1L, static_cast<long>(uid), -1L); };
  const auto set_gid = [gid] { return raw(SYS_setresgid, -1L, static_cast<long>(gid), -1L); };
  long rc = uid_first ? set_uid() : set_gid();
  if (rc >= 0) rc = uid_first ? set_gid() : set_uid();
  if (rc < 0)
    return sys_failure(static_cast<int>(-rc),
                       "take the effective ids " + std::to_string(uid) + ":" + std::to_string(gid));
  return {};
}

}  // namespace

Result<std::uint64_t> effective_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  CapabilityData data{};
  if (const long rc = raw(SYS_capget, &header, data.data()); rc < 0)
    return sys_failure(static_cast<int>(-rc), "read the launcher's capabilities");
  return std::uint64_t{data[1].effective} << 32 | data[0].effective;
}

Result<std::vector<gid_t>> supplementary_groups() {
  std::vector<gid_t> groups(256);
  int count = getgroups(static_cast<int>(groups.size()), groups.data());
  if (count < 0 && errno == EINVAL) {
    groups.resize(65536);  // NGROUPS_MAX
    count = getgroups(static_cast<int>(groups.size()), groups.data());
  }
  if (count < 0) return sys_failure(errno, "read the caller's groups");
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

Status set_groups(const gid_t* groups, std::size_t count) {
  if (const long rc = raw(SYS_setgroups, count, groups); rc < 0)
    return sys_failure(static_cast<int>(-rc), "set the supplementary groups");
  return {};
}

SessionCredentials::~SessionCredentials() {
  if (!leave()) std::abort();
}

Status SessionCredentials::assume(uid_t uid, gid_t gid) {
  assumed_ = true;  // Also when only the gid has changed by the time of an error.
  // The gid first: it takes CAP_SETGID, which the change of uid clears.
  return set_effective(uid, gid, /*uid_first=*/false);
}

Status SessionCredentials::look_as(uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
  std::vector<gid_t> own = BELLJAR_TRY(supplementary_groups());
  BELLJAR_CHECK(set_groups(groups.data(), groups.size()));
  own_groups_ = std::move(own);
  BELLJAR_CHECK(assume(uid, gid));
  return lower_capabilities();
}

Status SessionCredentials::lower_capabilities() {
  lowered_ = true;
  return set_capabilities(0, capabilities_);
}

Status SessionCredentials::raise_capabilities() {
  return set_capabilities(capabilities_, capabilities_);
}

Status SessionCredentials::leave() {
  if (assumed_) {
    assumed_ = false;
    // The uid first: the saved uid allows it without a capability, and going back to 0 makes the
    // permitted capabilities effective again (man 7 capabilities), SETGID among them.
    BELLJAR_CHECK(set_effective(own_uid_, own_gid_, /*uid_first=*/true));
    lowered_ = lowered_ || own_uid_ != 0;
  }
  if (lowered_) BELLJAR_CHECK(raise_capabilities());
  lowered_ = false;
  if (own_groups_) BELLJAR_CHECK(set_groups(own_groups_->data(), own_groups_->size()));
  own_groups_.reset();
  return {};
}

}  // namespace belljar::sys
