#include "api/v1/context.hpp"

#include "policy/units.hpp"

namespace belljar::api {

std::shared_ptr<supervisor::Session> V1Context::session(Request& request) const {
  if (request.captured.empty()) return nullptr;
  auto found = supervisor->find(request.captured[0]);
  if (found) request.session = found->id();
  return found;
}

std::shared_ptr<supervisor::Process> V1Context::process(Request& request) const {
  const auto owner = session(request);
  if (!owner || request.captured.size() < 2) return nullptr;
  const auto id = policy::parse_decimal(request.captured[1]);
  if (!id || *id > UINT32_MAX) return nullptr;
  return owner->process(static_cast<std::uint32_t>(*id));
}

Response V1Context::no_session(Request& request) const {
  return no_such(request, "session", request.captured.empty() ? "" : request.captured[0]);
}

Response V1Context::no_process(Request& request) const {
  if (!session(request)) return no_session(request);
  return no_such(request, "process", request.captured.size() < 2 ? "" : request.captured[1]);
}

}  // namespace belljar::api
