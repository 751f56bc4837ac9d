#include "api/belljard/confinement.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace belljar::api {
namespace {

constexpr const char* kKnob = "/proc/sys/kernel/core_pattern";
constexpr const char* kRemedy = "start the container as container/compose.yaml does";

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (line.ends_with('\0')) line.pop_back();
  return line;
}

/// "Seccomp:\t2" is 2.
int status_number(const std::string& status, std::string_view name) {
  const std::size_t at = status.find("\n" + std::string(name) + ":\t");
  return at == std::string::npos ? 0 : std::atoi(status.c_str() + at + name.size() + 3);
}

/// Where a procfs is mounted, /proc left out, and a look at the path meets it: a hidden one is in
/// the mount table alone.
std::vector<std::string> procs_that_paths_lead_to() {
  std::vector<std::string> found;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skipped, point;
    for (int i = 0; i < 4; ++i) words >> skipped;
    words >> point;
    struct statfs about {};
    if (line.find(" - proc ") != std::string::npos && point != "/proc" &&
        !point.starts_with("/proc/") && statfs(point.c_str(), &about) == 0 &&
        about.f_type == PROC_SUPER_MAGIC)
      found.push_back(point);
  }
  return found;
}

}  // namespace

std::vector<std::string> Confinement::prices() const {
  std::vector<std::string> found;
  if (knobs_open)
    found.push_back(std::string(kKnob) +
                    " is writable: whoever takes this container's root over owns the host");
  for (const std::string& path : other_procs)
    found.push_back(path + " shows the host's processes to this container's root: cover it");
  if (!filtered)
    found.emplace_back(
        "no system call filter: this container's root meets the whole of the host's kernel");
  if (!no_new_privs)
    found.emplace_back("no no-new-privileges: set-user-id programs of the image work");
  return found;
}

Facts Confinement::facts() const {
  return {{"setting", prices().empty() ? "narrow" : "open"},
          {"filter", filtered ? "yes" : "no"},
          {"proc", knobs_open ? "writable" : "protected"},
          {"no_new_privs", no_new_privs ? "yes" : "no"},
          {"apparmor", apparmor.empty() ? "none" : apparmor}};
}

Confinement observe_confinement() {
  Confinement found;
  found.container = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;
  std::ifstream file("/proc/self/status");
  std::ostringstream status;
  status << file.rdbuf();
  found.filtered = status_number(status.str(), "Seccomp") == 2;
  found.no_new_privs = status_number(status.str(), "NoNewPrivs") == 1;
  found.knobs_open = access(kKnob, W_OK) == 0;
  found.apparmor = first_line("/proc/self/attr/current");
  found.other_procs = procs_that_paths_lead_to();
  return found;
}

void tell(const Confinement& found) {
  if (!found.container) return;
  log(Level::kInfo, "the container", found.facts());
  for (const std::string& price : found.prices())
    log(Level::kWarning, "the container is open", {{"price", price}, {"remedy", kRemedy}});
}

}  // namespace belljar::api
