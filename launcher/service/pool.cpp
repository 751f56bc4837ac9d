#include "launcher/service/pool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "launcher/sys/process_status.hpp"
#include "launcher/sys/read_file.hpp"
#include "policy/units.hpp"

namespace belljar::service {
namespace {

struct Claim {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::string by;
};

/// The fields of each line of a table like /etc/passwd.
std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, ':');) fields.push_back(field);
    if (!line.empty() && line.front() != '#') rows.push_back(std::move(fields));
  }
  return rows;
}

void claim_by_number(std::vector<Claim>& claims, const std::string& table, const char* what) {
  for (const auto& row : rows_of(table)) {
    const auto number = row.size() > 2 ? policy::parse_decimal(row[2]) : std::nullopt;
    if (number) claims.push_back({*number, *number, std::string(what) + row[0]});
  }
}

void claim_by_range(std::vector<Claim>& claims, const std::string& table, const char* file) {
  for (const auto& row : rows_of(table)) {
    const auto first = row.size() > 2 ? policy::parse_decimal(row[1]) : std::nullopt;
    const auto count = row.size() > 2 ? policy::parse_decimal(row[2]) : std::nullopt;
    if (!first || !count || *count == 0) continue;
    const std::uint64_t last = *first + *count - 1 < *first ? UINT64_MAX : *first + *count - 1;
    claims.push_back({*first, last, "the range of " + row[0] + " in " + file});
  }
}

}  // namespace

bool Pool::holds(std::uint64_t uid) const {
  return privileged ? uid >= first && uid - first < count : uid == own_uid;
}

std::string Pool::text() const {
  if (!privileged) return std::to_string(own_uid);
  return std::to_string(first) + "-" + std::to_string(first + count - 1);
}

Neighbours look_around() {
  Neighbours found;
  found.passwd = sys::read_file(AT_FDCWD, "/etc/passwd");
  found.group = sys::read_file(AT_FDCWD, "/etc/group");
  found.subuid = sys::read_file(AT_FDCWD, "/etc/subuid");
  found.subgid = sys::read_file(AT_FDCWD, "/etc/subgid");
  for (const pid_t pid : sys::all_processes()) {
    if (pid == getpid()) continue;
    if (const auto status = sys::status_of(pid); status && !status->has_ended())
      found.processes.push_back({pid, status->name, status->uids});
  }
  return found;
}

Status check_pool(std::uint64_t first, std::uint64_t last, const Neighbours& neighbours) {
  // systemd gives these to services for as long as they run (DynamicUser=), and 65534 is nobody.
  std::vector<Claim> claims = {{61184, 65519, "systemd's dynamic users (61184-65519)"},
                               {65534, 65535, "nobody (65534) and no user at all (65535)"}};
  claim_by_number(claims, neighbours.passwd, "the user ");
  claim_by_number(claims, neighbours.group, "the group ");
  claim_by_range(claims, neighbours.subuid, "/etc/subuid");
  claim_by_range(claims, neighbours.subgid, "/etc/subgid");
  for (const Neighbours::Process& process : neighbours.processes)
    for (const std::uint64_t uid : process.uids)
      claims.push_back({uid, uid,
                        "process " + std::to_string(process.pid) + " (" + process.name +
                            ") of uid " + std::to_string(uid)});
  for (const Claim& claim : claims) {
    if (claim.last < first || claim.first > last) continue;
    return fail({ErrorKind::kRefused, 0,
                 "the pool of uids " + std::to_string(first) + "-" + std::to_string(last) +
                     " (the last is for self-tests) overlaps " + claim.by,
                 "uid_base",
                 "choose another with --uid-base, or BELLJAR_UID_BASE, whose uids nobody has"});
  }
  return {};
}

}  // namespace belljar::service
