#include "supervisor/failure.hpp"

#include <cstring>
#include <nlohmann/json.hpp>

namespace belljar::supervisor {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kBeyondMaximum:
      return "beyond_maximum";
    case Code::kExists:
      return "exists";
    case Code::kNotFound:
      return "not_found";
    case Code::kConflict:
      return "conflict";
    case Code::kShellBusy:
      return "shell_busy";
    case Code::kEnded:
      return "ended";
    case Code::kPrecondition:
      return "precondition";
    case Code::kCapacity:
      return "capacity";
    case Code::kQuota:
      return "quota";
    case Code::kBusy:
      return "busy";
    case Code::kDraining:
      return "draining";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kSandbox:
      return "sandbox";
    case Code::kRefused:
      return "refused";
    case Code::kDenied:
      return "denied";
    case Code::kTooLarge:
      return "too_large";
    case Code::kNoSpace:
      return "no_space";
    case Code::kTimeout:
      return "timeout";
    case Code::kPortClosed:
      return "port_closed";
    case Code::kLost:
      return "lost";
    case Code::kSystem:
      return "system";
  }
  return "system";
}

tl::unexpected<Failure> refuse(Code code, std::string what, std::string remedy) {
  const bool system = code == Code::kSystem;
  Failure failure;
  failure.code = code;
  failure.error.kind = system ? ErrorKind::kSystem
                       : code == Code::kInvalid || code == Code::kBeyondMaximum
                           ? ErrorKind::kInvalid
                           : ErrorKind::kUnavailable;
  failure.error.what = std::move(what);
  failure.error.remedy = std::move(remedy);
  return tl::unexpected<Failure>(std::move(failure));
}

std::string_view fault_name(const Failure& failure) {
  const auto setup = nlohmann::json::parse(failure.setup, nullptr, false);
  if (failure.code != Code::kSandbox || !setup.is_object()) return code_name(failure.code);
  const auto control = setup.value("control", nlohmann::json());
  if (control == "command") return "not_executable";
  if (control != "policy") return code_name(failure.code);
  const auto path = setup.value("policy", nlohmann::json());
  const bool limit = path.is_string() && path.get<std::string>().starts_with("limits.");
  return limit ? "beyond_maximum" : "refused";
}

tl::unexpected<Failure> sys_refusal(int sys_errno, std::string what) {
  Failure failure;
  failure.code = sys_errno == ENOSPC || sys_errno == EDQUOT ? Code::kNoSpace : Code::kSystem;
  failure.error.sys_errno = sys_errno;
  failure.error.what = std::move(what) + ": " + std::strerror(sys_errno);
  return tl::unexpected<Failure>(std::move(failure));
}

}  // namespace belljar::supervisor
