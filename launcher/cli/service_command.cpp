#include "launcher/cli/service_command.hpp"

#include <cstdio>

#include "launcher/service/service.hpp"

namespace belljar::launcher {

void ServiceCommand::add_to(CLI::App& app) {
  app.group("");
  app.add_option("--fd", socket_, "The service's end of a SOCK_SEQPACKET pair")->required();
  settings_.declare(app);
}

int ServiceCommand::run() const {
  const std::optional<policy::Settings> settings = settings_.load();
  if (!settings) return 2;
  auto started = service::Service::start(*settings, sys::UniqueFd(socket_));
  if (!started) {
    const service::Fault why = service::fault_of(started.error());
    std::fprintf(stderr, "belljar launch-service: %s\n", why.message.c_str());
    return 1;
  }
  (*started)->run();
  return 0;
}

}  // namespace belljar::launcher
