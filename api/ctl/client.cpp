#include "api/ctl/client.hpp"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <thread>

namespace belljar::ctl {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string path_part(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  std::string part;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos) {
      part += c;
      continue;
    }
    std::array<char, 4> escape{};
    std::snprintf(escape.data(), escape.size(), "%%%02X", static_cast<unsigned char>(c));
    part += escape.data();
  }
  return part;
}

std::string session_path(std::string_view session) { return "/v1/sessions/" + path_part(session); }

std::string process_path(std::string_view session, std::string_view process) {
  return session_path(session) + "/processes/" + path_part(process);
}

const Json& member_of(const Json& tree, const char* key) {
  static const Json kNothing;
  if (!tree.is_object()) return kNothing;
  const auto found = tree.find(key);
  return found == tree.end() ? kNothing : *found;
}

std::string text_of(const Json& tree, const char* key) {
  const Json& member = member_of(tree, key);
  return member.is_string() ? member.get<std::string>() : std::string();
}

std::uint64_t number_of(const Json& tree, const char* key) {
  const Json& member = member_of(tree, key);
  return member.is_number_unsigned() ? member.get<std::uint64_t>() : 0;
}

std::string dumped(const Json& tree) {
  return tree.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string fresh_key() {
  std::array<unsigned char, 16> bytes{};
  std::string key;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return key;
  for (const unsigned char byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    key += digits.data();
  }
  return key;
}

bool Patience::again(const Failure& failure) {
  const bool passing = failure.kind == FailureKind::kBroken ||
                       failure.kind == FailureKind::kUnreachable || failure.status == 503;
  if (!passing) return false;
  const auto now = steady_clock::now();
  if (trouble_ == steady_clock::time_point{}) {
    trouble_ = now;
    pause_ = milliseconds(0);
  }
  if (now - trouble_ > std::chrono::minutes(1)) return false;
  std::this_thread::sleep_for(pause_);
  pause_ = std::min(2 * pause_ + milliseconds(50), milliseconds(2000));
  return true;
}

Outcome<Answer> Client::call(const Call& call) const {
  Outcome<Answer> answer = exchange(address_, call);
  if (!answer || answer->stopped || (answer->status >= 200 && answer->status < 300)) return answer;
  Failure problem = problem_of(answer->status, answer->body);
  if (answer->status == 401 && problem.remedy.empty())
    problem.remedy = "the daemon's token: --token-file FILE, or the variable BELLJAR_TOKEN";
  return tl::unexpected(std::move(problem));
}

Outcome<Json> Client::ask(const Call& call) const {
  Outcome<Answer> answer = this->call(call);
  if (!answer) return tl::unexpected(std::move(answer).error());
  if (answer->stopped) return failed(FailureKind::kLocal, "interrupted");
  if (answer->body.empty()) return Json();
  Json tree = Json::parse(answer->body, nullptr, false);
  if (!tree.is_discarded()) return tree;
  return failed(FailureKind::kBroken,
                call.method + ' ' + call.target + ": the answer is not JSON, as belljard's are",
                "is it belljard that listens at " + address_.text() + '?');
}

Outcome<Json> Client::get(const std::string& target) const { return ask(Call("GET", target)); }

Outcome<Json> Client::post(const std::string& target, const Json& body) const {
  Call call("POST", target);
  call.body = dumped(body);
  call.content_type = "application/json";
  return ask(call);
}

Outcome<Json> Client::start(const std::string& target, const Json& body,
                            std::vector<Watch> watches) const {
  Call call("POST", target);
  call.body = dumped(body);
  call.content_type = "application/json";
  call.headers.emplace_back("Idempotency-Key", fresh_key());
  call.watches = std::move(watches);
  call.silence = std::chrono::minutes(2);  // Starts wait for their turn, and for a port.
  for (int attempt = 1;; ++attempt) {
    Outcome<Json> answer = ask(call);
    if (answer || answer.error().kind != FailureKind::kBroken || attempt == 3) return answer;
  }
}

}  // namespace belljar::ctl
