// A sandbox with a session socket, without the service: serve_session FD POLICY [ARGV...]
#include <fcntl.h>

#include <cstdio>
#include <cstdlib>

#include "launcher/service/monitor.hpp"
#include "policy/load.hpp"

int main(int argc, char** argv) {
  using namespace belljar;
  if (argc < 3) return 2;
  policy::Layers layers;
  layers.add(argv[2]);
  auto policy = layers.resolve();
  if (!policy) {
    for (const auto& wrong : policy.error()) std::fprintf(stderr, "%s\n", wrong.text().c_str());
    return 2;
  }
  service::SessionOrder order;
  order.policy = std::move(*policy);
  order.command.argv.assign(argv + 3, argv + argc);
  order.command.stands_by = argc == 3;
  if (const char* opened = std::getenv("WORKSPACE"))
    order.command.workspace = open(opened, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (std::getenv("TERMINAL") != nullptr) order.terminal = sys::TerminalSize{30, 100, 0, 0};
  service::serve_session(order, sys::UniqueFd(std::atoi(argv[1])));
  return 0;
}
