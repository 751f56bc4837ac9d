#include "launcher/network/messages.hpp"

#include <sys/socket.h>

#include <array>
#include <nlohmann/json.hpp>

namespace belljar::network {
namespace {

using Json = nlohmann::ordered_json;

/// A hundred refusals with their reasons stay below it; reasons are cut.
constexpr std::size_t kMostBytes = 128 << 10;
constexpr std::size_t kMostReason = 500;

std::string text_in(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t number_in(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

}  // namespace

void tell(int socket, const Word& word) {
  Json json{{"kind", static_cast<unsigned>(word.kind)},
            {"errno", static_cast<unsigned>(word.error.sys_errno)},
            {"what", word.error.what},
            {"where", word.error.where},
            {"remedy", word.error.remedy},
            {"refusals", Json::array()}};
  for (const Refusal& one : word.refusals)
    json["refusals"].push_back({{"to", one.to},
                                {"because", one.because.substr(0, kMostReason)},
                                {"packets", one.packets}});
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  (void)send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::optional<Word> hear(int socket) {
  std::vector<char> room(kMostBytes);
  const ssize_t got = recv(socket, room.data(), room.size(), 0);
  if (got <= 0) return std::nullopt;
  const Json json =
      Json::parse(room.data(), room.data() + got, nullptr, /*allow_exceptions=*/false);
  const std::uint64_t kind = json.is_object() ? number_in(json, "kind") : 3;
  if (kind > static_cast<std::uint64_t>(Word::Kind::kOver)) return std::nullopt;
  Word word;
  word.kind = static_cast<Word::Kind>(kind);
  word.error = {ErrorKind::kUnavailable, static_cast<int>(number_in(json, "errno")),
                text_in(json, "what"), text_in(json, "where"), text_in(json, "remedy")};
  if (const auto list = json.find("refusals"); list != json.end() && list->is_array())
    for (const Json& one : *list)
      if (one.is_object())
        word.refusals.push_back(
            {text_in(one, "to"), text_in(one, "because"), number_in(one, "packets")});
  return word;
}

}  // namespace belljar::network
