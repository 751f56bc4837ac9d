#include <sys/prctl.h>

#include <cerrno>

#include "launcher/controls/control.hpp"
#include "launcher/controls/promises.hpp"

namespace belljar::launcher {
namespace {

constexpr Probe kProbes[] = {
    {"no-new-privs-off", "run without no_new_privs",
     [] { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? EPERM : 0; },
     [](const Made&) -> const char* { return "no_new_privs"; }},
};

Status plan(PlanBuilder& builder) {
  builder.add(Phase::kPrivileges, SetNoNewPrivileges{});
  return {};
}

}  // namespace

const Control kNoNewPrivileges = {
    "no_new_privs",
    "no exec gives more than the payload has: no setuid program, no file capability "
    "(read back with the identity)",
    nothing_required,
    plan,
    nullptr,
    kProbes,
    no_remedy};

}  // namespace belljar::launcher
