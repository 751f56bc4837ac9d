// The /v1 face: sessions, processes, files and streams as docs/api.md describes them.
#pragma once

#include <memory>

#include "api/http/server.hpp"
#include "api/v1/context.hpp"
#include "api/v1/router.hpp"

namespace belljar::api {

class V1Face {
 public:
  V1Face(std::shared_ptr<supervisor::Supervisor> supervisor,
         std::shared_ptr<SelfTestCache> self_test, V1Options options);
  ~V1Face();
  V1Face(const V1Face&) = delete;
  V1Face& operator=(const V1Face&) = delete;

  /// Whether a path is one of this face's.
  [[nodiscard]] bool owns(const Request& head) const;
  /// Whether it is answered to who shows no token.
  [[nodiscard]] bool open(const Request& head) const { return router_.open(head); }
  [[nodiscard]] Verdict route(Request& head) const;

 private:
  V1Context context_;
  Router router_;
};

}  // namespace belljar::api
