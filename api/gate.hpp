// The gate: who asks, before anything looks at what is asked; then which face answers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "api/hosts.hpp"
#include "api/http/server.hpp"
#include "api/simulator/face.hpp"
#include "api/tokens.hpp"
#include "api/v1/face.hpp"

namespace belljar::api {

class Gate final : public Handler {
 public:
  /// Told of each request that is answered, and of each that is turned away.
  using Listener = std::function<void(const Request&, int status, std::chrono::microseconds)>;

  Gate(Tokens tokens, Listener listener)
      : tokens_(std::move(tokens)), listener_(std::move(listener)) {}

  void set_tokens(Tokens tokens) { tokens_ = std::move(tokens); }
  void set_simulator(SimulatorFace* face) { simulator_ = face; }
  /// Requests for it that come over TCP have to name one of `hosts`.
  void set_v1(V1Face* face, Hosts hosts) {
    v1_ = face;
    hosts_ = std::move(hosts);
  }
  /// GET /metrics, with the credentials of either face.
  void set_metrics(std::function<std::string()> metrics) { metrics_ = std::move(metrics); }

  [[nodiscard]] Verdict judge(Request& head) override;
  [[nodiscard]] Response refusal(const Refusal& why) override;
  void done(const Request& request, int status, std::chrono::microseconds took) override {
    listener_(request, status, took);
  }

 private:
  /// Nothing when `head` may go on; its client is set then.
  [[nodiscard]] std::optional<Response> authenticate(Request& head) const;
  [[nodiscard]] std::optional<Response> check_origin(Request& head) const;
  [[nodiscard]] std::optional<Response> check_host(Request& head) const;
  [[nodiscard]] Verdict route(Request& head);
  /// In the words of the face that `head` is for.
  [[nodiscard]] Response turn_away(Request& head, int status, std::string_view code,
                                   std::string_view why) const;
  [[nodiscard]] bool is_v1(const Request& head) const { return v1_ != nullptr && v1_->owns(head); }

  Tokens tokens_;
  Listener listener_;
  SimulatorFace* simulator_ = nullptr;
  V1Face* v1_ = nullptr;
  Hosts hosts_;
  std::function<std::string()> metrics_;
};

}  // namespace belljar::api
