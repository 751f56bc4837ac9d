#include "api/v1/face.hpp"

#include "api/v1/operations.hpp"
#include "api/v1/transfer.hpp"

namespace belljar::api {

void add_all_operations(Router& router, const V1Context& context) {
  add_host_operations(router, context);
  add_session_operations(router, context);
  add_process_operations(router, context);
  add_exec_operations(router, context);
  add_shell_operations(router, context);
  add_lease_operations(router, context);
  add_output_operations(router, context);
  add_attach_operations(router, context);
  add_event_operations(router, context);
  const auto transfers = std::make_shared<Transfers>();
  add_file_operations(router, context, transfers);
  add_archive_operations(router, context, transfers);
  add_proxy_operations(router, context);
}

V1Face::V1Face(std::shared_ptr<supervisor::Supervisor> supervisor,
               std::shared_ptr<SelfTestCache> self_test, V1Options options)
    : context_{std::move(supervisor), std::move(self_test), std::move(options), nullptr, nullptr} {
  context_.rate =
      std::make_shared<StartRate>(*context_.supervisor->clock(), context_.options.starts_a_minute);
  context_.leases = std::make_shared<Leases>();
  add_all_operations(router_, context_);
}

V1Face::~V1Face() = default;

bool V1Face::owns(const Request& head) const {
  return !head.path.empty() &&
         (head.path[0] == "v1" || head.path[0] == "livez" || head.path[0] == "readyz");
}

Verdict V1Face::route(Request& head) const {
  if (auto verdict = router_.route(head)) return *std::move(verdict);
  Verdict verdict;
  verdict.refuse = problem_response(head, Problem(404, "not_found", "there is no such resource"));
  return verdict;
}

}  // namespace belljar::api
