// `belljar probe NAME...`, internal: tries, from inside a sandbox, what the controls must refuse.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "launcher/attempts.hpp"
#include "launcher/cli/options.hpp"
#include "launcher/controls/control.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/proc.hpp"

namespace belljar::launcher {

int probe_command(const ProbeOptions& options) {
  const std::vector<std::string>& names = options.names;
  if (options.wait) pause();
  for (volatile bool on = options.spin; on;) {
  }
  if (!options.attempt.empty()) return std::puts(attempt(options.attempt).c_str()) < 0 ? 1 : 0;
  // What the sandbox left open is looked for, not what belljar opened itself.
  close(sys::proc_directory());
  // Line by line: what the filter kills must not take the answers before it along.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  bool any_open = false;
  std::size_t tried = 0;
  for (const Control* control : controls()) {
    for (const Probe& probe : control->probes) {
      const bool wanted =
          names.empty() || std::find(names.begin(), names.end(), probe.name) != names.end();
      if (!wanted) continue;
      ++tried;
      std::printf("%s %s\n", std::string(probe.name).c_str(), kTrying);
      const int refusal = probe.attempt_it();
      any_open |= refusal == 0;
      std::printf("%s %s\n", std::string(probe.name).c_str(),
                  refusal == 0 ? "open" : errno_name(refusal).c_str());
    }
  }
  if (!names.empty() && tried != names.size()) {
    std::fputs("belljar: unknown probe\n", stderr);
    return 2;
  }
  return any_open ? 1 : 0;
}

}  // namespace belljar::launcher
