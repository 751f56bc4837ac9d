#include "api/v1/media.hpp"

#include <algorithm>

#include "policy/units.hpp"

namespace belljar::api {
namespace {

/// Calls `see` with each element of a comma-separated list.
template <class See>
void each_element(std::string_view list, See see) {
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    if (const std::string_view element = trim(list.substr(from, to - from)); !element.empty())
      see(element);
    from = to + 1;
  }
}

/// How exactly a media range names a type: 0 is not at all, 3 is by name.
int match_rank(std::string_view range, std::string_view type) {
  if (same_name(range, type)) return 3;
  if (range == "*/*") return 1;
  return range.ends_with("/*") &&
                 same_name(range.substr(0, range.size() - 1), type.substr(0, type.find('/') + 1))
             ? 2
             : 0;
}

/// "q=0.5" in thousandths; a weight that is none is a full one.
int weight_of(std::string_view parameters) {
  while (!parameters.empty()) {
    const std::size_t end = std::min(parameters.find(';'), parameters.size());
    const std::string_view one = trim(parameters.substr(0, end));
    parameters.remove_prefix(std::min(end + 1, parameters.size()));
    if (!one.starts_with("q=") && !one.starts_with("Q=")) continue;
    const std::string_view value = one.substr(2);
    if (value.empty() || value.front() != '0') return 1000;
    int weight = 0;
    for (std::size_t digit = 2; digit < 5; ++digit)
      weight = weight * 10 + (digit < value.size() && value[digit] >= '0' && value[digit] <= '9'
                                  ? value[digit] - '0'
                                  : 0);
    return weight;
  }
  return 1000;
}

int weight_for(const Request& request, std::string_view type) {
  int best = 0, weight = 0;
  bool asked = false;
  for (const auto& [name, value] : request.headers.all()) {
    if (!same_name(name, "accept")) continue;
    asked = true;
    each_element(value, [&](std::string_view element) {
      const std::size_t end = std::min(element.find(';'), element.size());
      const int rank = match_rank(trim(element.substr(0, end)), type);
      if (rank < best || rank == 0) return;
      weight = rank > best ? weight_of(element.substr(end)) : std::max(weight, weight_of(element));
      best = rank;
    });
  }
  return asked ? weight : 1000;
}

}  // namespace

std::optional<std::size_t> choose_type(const Request& request,
                                       std::initializer_list<std::string_view> offered) {
  std::optional<std::size_t> best;
  int most = 0;
  std::size_t index = 0;
  for (const std::string_view type : offered) {
    if (const int weight = weight_for(request, type); weight > most) {
      most = weight;
      best = index;
    }
    ++index;
  }
  return best;
}

RangeWish wanted_range(const Request& request, std::uint64_t size) {
  using Kind = RangeWish::Kind;
  const std::string_view field = request.headers.find("range").value_or("");
  constexpr std::string_view kUnit = "bytes=";
  const std::size_t dash = field.find('-');
  // Several ranges are one that need not be understood.
  if (!field.starts_with(kUnit) || dash == std::string_view::npos ||
      field.find(',') != std::string_view::npos)
    return {};
  const std::string_view first = field.substr(kUnit.size(), dash - kUnit.size());
  const std::string_view last = field.substr(dash + 1);
  const auto from = policy::parse_decimal(first), to = policy::parse_decimal(last);
  if ((!first.empty() && !from) || (!last.empty() && !to) || (!from && !to)) return {};
  if (!from) {
    const std::uint64_t length = std::min(*to, size);
    if (length == 0) return {Kind::kNone};
    return {Kind::kPart, size - length, size};
  }
  if (to && *to < *from) return {};
  if (*from >= size) return {Kind::kNone};
  return {Kind::kPart, *from, to && *to < size ? *to + 1 : size};
}

std::string content_range(std::uint64_t from, std::uint64_t to, std::optional<std::uint64_t> size) {
  return "bytes " + std::to_string(from) + '-' + std::to_string(to - 1) + '/' +
         (size ? std::to_string(*size) : "*");
}

bool names_etag(std::string_view field, std::string_view etag) {
  bool found = false;
  each_element(field, [&](std::string_view element) {
    if (element.starts_with("W/")) element.remove_prefix(2);
    found |= element == "*" || (element.size() == etag.size() + 2 && element.front() == '"' &&
                                element.back() == '"' && element.substr(1, etag.size()) == etag);
  });
  return found;
}

std::string offsets_text(const Offsets& offsets) {
  return "stdout=" + std::to_string(offsets.out) + ",stderr=" + std::to_string(offsets.err);
}

std::optional<Offsets> parse_offsets(std::string_view text) {
  constexpr std::string_view kOut = "stdout=", kErr = ",stderr=";
  const std::size_t comma = text.find(',');
  if (!text.starts_with(kOut) || comma == std::string_view::npos ||
      !text.substr(comma).starts_with(kErr))
    return std::nullopt;
  const auto out = policy::parse_decimal(text.substr(kOut.size(), comma - kOut.size()));
  const auto err = policy::parse_decimal(text.substr(comma + kErr.size()));
  if (!out || !err) return std::nullopt;
  return Offsets{*out, *err};
}

std::string sse_event(std::string_view type, std::string_view id, std::string_view data) {
  std::string text = "event: ";
  text += type;
  text += "\nid: ";
  text += id;
  text += "\ndata: ";
  text += data;  // JSON on one line.
  return text + "\n\n";
}

}  // namespace belljar::api
