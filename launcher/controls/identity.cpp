#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/session_credentials.hpp"

namespace belljar::launcher {
namespace {

constexpr Probe kProbes[] = {
    {"setuid-root", "become uid 0", [] { return setresuid(0, 0, 0) == 0 ? 0 : errno; },
     [](const Made& made) -> const char* {
       const bool other_ids = made.policy.identity.ids && keeps(made.policy, "CAP_SETUID");
       return is_root_inside(made) || other_ids ? nullptr : "identity.uid";
     }},
    {"setgroups", "take supplementary groups",
     [] {
       const gid_t root_group = 0;
       return sys::set_groups(&root_group, 1) ? 0 : EPERM;
     },
     [](const Made&) -> const char* { return "identity.groups"; }},
};

std::string ids_text(uid_t uid, gid_t gid) {
  return "uid " + std::to_string(uid) + ", gid " + std::to_string(gid);
}

std::string octal(mode_t mode) {
  std::ostringstream text;
  text << '0' << std::oct << mode;
  return text.str();
}

Seen look_at_ids(const std::string& expected) {
  uid_t uids[3];
  gid_t gids[3];
  if (getresuid(&uids[0], &uids[1], &uids[2]) != 0 || getresgid(&gids[0], &gids[1], &gids[2]) != 0)
    return unseen("getresuid: " + errno_name(errno));
  for (int i = 0; i < 3; ++i)
    if (const Seen seen = compare("it", ids_text(uids[i], gids[i]), expected);
        seen.verdict != Seen::Verdict::kHolds)
      return seen;
  return holds();
}

constexpr Fact kFacts[] = {
    {"ids", "the command is somebody else", look_at_ids,
     [](const Made& made) {
       std::vector<Fact::Expected> expected;
       const policy::Identity& identity = made.policy.identity;
       if (made.policy.namespaces.user == policy::NamespaceMode::kNew)
         expected.push_back({ids_text(identity.inside_uid.value_or(made.ids.uid),
                                      identity.inside_gid.value_or(made.ids.gid)),
                             "identity.uid"});
       return expected;
     }},
    {"groups", "the command is in other groups than the policy's",
     [](const std::string& expected) {
       const int count = getgroups(0, nullptr);
       if (count < 0) return unseen("getgroups: " + errno_name(errno));
       // Those that the sandbox does not map all look alike inside.
       return compare("their number", std::to_string(count), expected);
     },
     [](const Made& made) {
       std::vector<Fact::Expected> expected;
       if (made.host.privileged())
         expected.push_back(
             {std::to_string(made.policy.identity.groups.size()), "identity.groups"});
       return expected;
     }},
    {"umask", "the umask is not the policy's",
     [](const std::string& expected) {
       const mode_t mask = umask(0);
       umask(mask);
       return compare("it", octal(mask), expected);
     },
     [](const Made& made) {
       return std::vector<Fact::Expected>{{octal(made.policy.identity.umask), "identity.umask"}};
     }},
    {"hostname", "the host's name is not the policy's",
     [](const std::string& expected) {
       utsname names{};
       if (uname(&names) != 0) return unseen("uname: " + errno_name(errno));
       return compare("it", names.nodename, expected);
     },
     [](const Made& made) {
       std::vector<Fact::Expected> expected;
       if (made.policy.identity.hostname)
         expected.push_back({*made.policy.identity.hostname, "identity.hostname"});
       return expected;
     }},
};

uid_t inside_uid(const PlanBuilder& builder) {
  return builder.policy.identity.inside_uid.value_or(builder.ids.uid);
}

gid_t inside_gid(const PlanBuilder& builder) {
  return builder.policy.identity.inside_gid.value_or(builder.ids.gid);
}

Status plan_groups(PlanBuilder& builder) {
  const policy::Identity& identity = builder.policy.identity;
  if (builder.host.privileged()) {
    builder.add(Phase::kBefore, SetGroups{{identity.groups.begin(), identity.groups.end()}},
                "identity.groups");
    return {};
  }
  std::vector<gid_t> wanted(identity.groups.begin(), identity.groups.end());
  std::vector<gid_t> held = builder.host.groups;
  std::sort(wanted.begin(), wanted.end());
  std::sort(held.begin(), held.end());
  if (wanted == held) return {};
  std::string list;
  for (gid_t group : held) list += (list.empty() ? "" : ", ") + std::to_string(group);
  const std::string what = "the caller's supplementary groups (" + list +
                           ") stay: only a privileged caller can drop them";
  if (identity.enforce == policy::Enforce::kPrefer) {
    builder.degrade(what);
    return {};
  }
  return fail({ErrorKind::kRefused, EPERM, what, "identity.groups",
               "accept them with \"identity\": { \"enforce\": \"prefer\" } or --set "
               "identity.enforce=prefer, "
               "or run belljar as root or as a user without them"});
}

/// The ids of one table that a policy asks for, and what they come to.
struct Subordinate {
  const char* file;    ///< "/etc/subuid"
  const char* option;  ///< Of usermod.
  const std::vector<sys::IdRange>& ranges;
};

/// What is listed twice, by number and by name perhaps, counts once. One id of the host for two of
/// the sandbox's is what the kernel refuses, with no more than EINVAL.
Result<std::vector<sys::IdRange>> ranges_apart(const Subordinate& table, const std::string& whose) {
  std::vector<sys::IdRange> apart;
  const auto text = [](const sys::IdRange& range) {
    return std::to_string(range.first) + ":" + std::to_string(range.count);
  };
  for (const sys::IdRange& range : table.ranges) {
    if (std::find(apart.begin(), apart.end(), range) != apart.end()) continue;
    for (const sys::IdRange& other : apart)
      if (range.first - other.first < other.count || other.first - range.first < range.count)
        return fail(
            {ErrorKind::kRefused, 0,
             whose + "the ranges " + text(other) + " and " + text(range) + ", which overlap",
             "identity.ids", "correct one of them in " + std::string(table.file)});
    apart.push_back(range);
  }
  return apart;
}

/// Inside, ids from 0 upwards but for the own one; outside, the ranges in their order. So the first
/// of them stay the same when there are more.
Result<std::vector<IdLine>> map_of(const PlanBuilder& builder, IdLine own,
                                   const Subordinate& table) {
  std::vector<IdLine> lines = {own};
  const std::uint64_t wanted = builder.policy.identity.ids.value_or(0);
  const std::string whose =
      std::string(table.file) + " gives uid " + std::to_string(builder.ids.uid) + " ";
  std::uint64_t inside = 0, given = 0;
  const std::vector<sys::IdRange> ranges = BELLJAR_TRY(ranges_apart(table, whose));
  for (const sys::IdRange& range : ranges) {
    given += range.count;
    const bool holds_own = own.outside - range.first < range.count;
    if (range.first == 0 || holds_own)
      return fail({ErrorKind::kRefused, 0,
                   whose + (range.first == 0 ? std::string("the id 0, which is root")
                                             : "its own id " + std::to_string(own.outside)),
                   "identity.ids", "correct the range in " + std::string(table.file)});
    std::uint32_t outside = range.first;
    for (std::uint64_t left = range.count; left > 0 && inside < wanted;) {
      if (inside == own.inside) {
        ++inside;
        continue;
      }
      const std::uint64_t end =
          inside < own.inside ? std::min<std::uint64_t>(own.inside, wanted) : wanted;
      const auto count = static_cast<std::uint32_t>(std::min(left, end - inside));
      lines.push_back({static_cast<std::uint32_t>(inside), outside, count});
      inside += count;
      outside += count;
      left -= count;
    }
  }
  const std::uint64_t needed = wanted - (own.inside < wanted ? 1 : 0);
  if (given >= needed) return lines;
  return fail({ErrorKind::kRefused, 0,
               given == 0 ? whose + "no range of ids"
                          : whose + std::to_string(given) + " ids, and " + std::to_string(needed) +
                                " are asked for",
               "identity.ids",
               std::string("as root: usermod ") + table.option +
                   " FIRST-LAST USER, or a smaller "
                   "identity.ids"});
}

Status plan_map(PlanBuilder& builder) {
  const Host& host = builder.host;
  MapIds map;
  map.by_helpers = builder.policy.identity.ids && !host.privileged();
  if (map.by_helpers && host.id_helpers_refused) return fail(*host.id_helpers_refused);
  map.uids = BELLJAR_TRY(map_of(builder, {inside_uid(builder), builder.ids.uid},
                                {"/etc/subuid", "--add-subuids", host.subordinate_uids}));
  map.gids = BELLJAR_TRY(map_of(builder, {inside_gid(builder), builder.ids.gid},
                                {"/etc/subgid", "--add-subgids", host.subordinate_gids}));
  // man 7 user_namespaces.
  constexpr std::size_t kMostLines = 340;
  if (std::max(map.uids.size(), map.gids.size()) > kMostLines)
    return fail({ErrorKind::kRefused, 0, "the kernel takes 340 ranges at most", "identity.ids",
                 "give the user one large range in /etc/subuid and /etc/subgid"});
  builder.add(Phase::kIds, std::move(map),
              builder.policy.identity.ids ? "identity.ids" : "identity.uid");
  return {};
}

Status plan(PlanBuilder& builder) {
  const policy::Identity& identity = builder.policy.identity;
  BELLJAR_CHECK(plan_groups(builder));
  const bool own_map = builder.policy.namespaces.user != policy::NamespaceMode::kJoin;
  if (own_map) BELLJAR_CHECK(plan_map(builder));
  if (own_map && builder.host.privileged())
    builder.add(Phase::kIds, TakeIds{inside_uid(builder), inside_gid(builder)}, "identity.uid");
  if (identity.hostname)
    builder.add(Phase::kNetwork, SetHostname{*identity.hostname}, "identity.hostname");
  builder.add(Phase::kStart, SetUmask{identity.umask}, "identity.umask");
  return {};
}

/// The payload's own status is compared as a whole: ids, groups, umask here, capabilities,
/// no_new_privs and the filter for the controls that follow.
Status read_back(PlanBuilder& builder) {
  const policy::Identity& identity = builder.policy.identity;
  builder.add(Phase::kStart,
              CheckInit{inside_uid(builder), inside_gid(builder), capability_bits(builder.policy)});
  CheckPayload check;
  check.uid = inside_uid(builder);
  check.gid = inside_gid(builder);
  check.umask = identity.umask;
  check.capabilities = capability_bits(builder.policy);
  check.filtered = has_filter(builder.policy) || builder.command.explain_denials;
  if (builder.host.privileged())
    check.groups = std::vector<gid_t>(identity.groups.begin(), identity.groups.end());
  builder.add(Phase::kReadBack, check);
  return {};
}

std::vector<Requirement> require(const policy::Policy& policy, const Host& host) {
  std::vector<Requirement> needs;
  if (policy.identity.uid.from == policy::Id::From::kNumber &&
      policy.identity.uid.number != host.uid)
    needs.push_back({"CAP_SETUID and CAP_SETGID, to run as another uid", "identity.uid"});
  if (policy.identity.ids)
    needs.push_back(
        {"ranges in /etc/subuid and /etc/subgid, and newuidmap and newgidmap for a "
         "caller without privileges",
         "identity.ids"});
  return needs;
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host& host) {
  if (std::holds_alternative<SetHostname>(failed.step->action) && failed.sys_errno == EPERM)
    return "the container's seccomp profile refuses sethostname: allow it there, or remove "
           "identity.hostname";
  if (std::holds_alternative<MapIds>(failed.step->action)) {
    if (failed.sys_errno == EPERM && host.uid == 0)
      return "mapping uid 0 takes CAP_SETFCAP; choose another uid: --set identity.uid=N";
    if (failed.sys_errno == EROFS)
      return "id maps are written to /proc, which is read-only here: mount a writable one, as "
             "every "
             "container has it by default";
    if (failed.sys_errno == EPERM || failed.sys_errno == EACCES)
      return "the kernel refuses the id map: on Ubuntu 24.04 and later AppArmor restricts user "
             "namespaces, see docs/hosts.md";
  }
  return {};
}

}  // namespace

bool Host::privileged() const {
  constexpr std::uint64_t kSetGid = 1U << 6, kSetUid = 1U << 7;  // CAP_SETGID, CAP_SETUID
  return (capabilities & (kSetGid | kSetUid)) == (kSetGid | kSetUid);
}

namespace {

Result<std::uint32_t> outside_id(const policy::Id& id, std::uint32_t callers, bool caller_is_root,
                                 bool privileged, const char* where) {
  using From = policy::Id::From;
  if (id.from == From::kPool)
    return fail({ErrorKind::kRefused, 0,
                 "\"pool\" ids come from the launch service, which `run` is not", where,
                 "give a number, or \"caller\""});
  if (id.from == From::kCaller) return caller_is_root ? kNobody : callers;
  if (id.number != callers && !privileged)
    return fail({ErrorKind::kRefused, EPERM,
                 "id " + std::to_string(id.number) + " is not the caller's own, which is " +
                     std::to_string(callers),
                 where,
                 "run belljar as root (or with CAP_SETUID and CAP_SETGID), or use \"caller\""});
  return id.number;
}

}  // namespace

Result<SessionIds> session_ids(const policy::Identity& identity, const Host& host) {
  const bool root = host.uid == 0;
  SessionIds ids;
  ids.uid =
      BELLJAR_TRY(outside_id(identity.uid, host.uid, root, host.privileged(), "identity.uid"));
  // A numbered uid brings its own group unless the policy says otherwise: never the caller's.
  policy::Id gid = identity.gid;
  if (gid.from == policy::Id::From::kCaller && ids.uid != host.uid)
    gid = {policy::Id::From::kNumber, ids.uid};
  ids.gid = BELLJAR_TRY(outside_id(gid, host.gid, false, host.privileged(), "identity.gid"));
  if (root && ids.uid == kNobody && !host.privileged())
    return fail({ErrorKind::kRefused, EPERM,
                 "uid 0 without CAP_SETUID and CAP_SETGID can run a sandbox only as uid 0",
                 "identity.uid",
                 "give belljar the two capabilities, or write out "
                 "--set identity.uid=0 --set identity.gid=0"});
  return ids;
}

const Control kIdentity = {"identity", "the payload is its own user, in no group of the caller's",
                           require,    plan,
                           read_back,  kProbes,
                           remedy,     kFacts};

}  // namespace belljar::launcher
