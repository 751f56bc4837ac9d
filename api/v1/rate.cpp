#include "api/v1/rate.hpp"

#include <algorithm>
#include <cmath>

namespace belljar::api {
namespace {

/// Clients have names that the operator gave, or are uids of the host; a group of many thousands is
/// the only way to have more.
constexpr std::size_t kMostClients = 10000;

}  // namespace

StartRate::StartRate(supervisor::Clock& clock, std::uint64_t a_minute)
    : clock_(clock), a_minute_(a_minute) {}

double StartRate::now_left(const Left& left, supervisor::TimePoint now) const {
  const double minutes = std::chrono::duration<double, std::ratio<60>>(now - left.at).count();
  const auto most = static_cast<double>(a_minute_);
  return std::min(most, left.starts + minutes * most);
}

std::optional<std::chrono::seconds> StartRate::take(const std::string& client) {
  if (a_minute_ == 0) return std::nullopt;
  const auto now = clock_.now();
  if (clients_.size() >= kMostClients)
    std::erase_if(clients_, [&](const auto& entry) {
      return now_left(entry.second, now) >= static_cast<double>(a_minute_);
    });
  Left fresh;
  fresh.starts = static_cast<double>(a_minute_);
  fresh.at = now;
  Left& left = clients_.try_emplace(client, fresh).first->second;
  left.starts = now_left(left, now);
  left.at = now;
  if (left.starts >= 1) {
    left.starts -= 1;
    return std::nullopt;
  }
  const double wait = (1 - left.starts) * 60 / static_cast<double>(a_minute_);
  return std::chrono::seconds(std::max(1L, std::lround(std::ceil(wait))));
}

}  // namespace belljar::api
