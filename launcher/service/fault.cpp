#include "launcher/service/fault.hpp"

#include <cerrno>
#include <cstring>

namespace belljar::service {
namespace {

Code code_of(int sys_errno) {
  switch (sys_errno) {
    case ENOENT:
      return Code::kNotFound;
    case EEXIST:
      return Code::kExists;
    case EACCES:
    case EPERM:
      return Code::kDenied;
    case ELOOP:  // A link, which is never followed.
    case EXDEV:  // A way out of the workspace.
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
      return Code::kRefused;
    case ENOSPC:
    case EDQUOT:
      return Code::kNoSpace;
    case EFBIG:
    case ENAMETOOLONG:
      return Code::kTooLarge;
    default:
      return Code::kSystem;
  }
}

}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kNotInPool:
      return "not_in_pool";
    case Code::kBusy:
      return "busy";
    case Code::kExists:
      return "exists";
    case Code::kNotFound:
      return "not_found";
    case Code::kRefused:
      return "refused";
    case Code::kDenied:
      return "denied";
    case Code::kChanged:
      return "changed";
    case Code::kTooLarge:
      return "too_large";
    case Code::kTimeout:
      return "timeout";
    case Code::kNoSpace:
      return "no_space";
    case Code::kSystem:
      break;
  }
  return "system";
}

tl::unexpected<Fault> refuse(Code code, std::string message) {
  return tl::unexpected<Fault>(Fault{code, std::move(message), 0});
}

tl::unexpected<Fault> call_failed(int sys_errno, const std::string& what) {
  return tl::unexpected<Fault>(
      Fault{code_of(sys_errno), what + ": " + strerrordesc_np(sys_errno), sys_errno});
}

Fault fault_of(const Error& error) {
  const std::string remedy = error.remedy.empty() ? "" : "; remedy: " + error.remedy;
  if (error.sys_errno != 0) {
    Fault fault = call_failed(error.sys_errno, error.what).value();
    fault.message += remedy;
    return fault;
  }
  return {error.kind == ErrorKind::kInvalid ? Code::kInvalid : Code::kRefused, error.what + remedy,
          0};
}

}  // namespace belljar::service
