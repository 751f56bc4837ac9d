#include "launcher/service/message.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/record.hpp"
#include "launcher/service/closed_object.hpp"
#include "policy/inline_policy.hpp"

namespace belljar::service {
namespace {

using Object = ClosedObject;

Demand read_hello(Object&) { return Hello{}; }

Demand read_prepare(Object& object) { return Prepare{object.workspace(), object.uid("uid")}; }

Demand read_remove(Object& object) { return Remove{object.workspace()}; }

Demand read_launch(Object& object) {
  Launch launch;
  launch.session = object.text("session");
  if (!is_workspace_name(launch.session))
    object.wrong("session", "expected 1 to 64 of A-Z, a-z, 0-9, _ and -");
  launch.uid = object.uid("uid");
  launch.workspace = object.workspace();
  if (object.has("inline")) {
    launch.inline_policy = object.text("inline");
    launch.policy = policy::kInlineName;
    if (launch.inline_policy->size() > policy::kLargestInline)
      object.wrong("inline", "has more than " + policy::size_text(policy::kLargestInline));
  } else {
    launch.policy = object.text("policy");
    launch.digest = object.text("digest", false);
  }
  launch.settings = object.texts("settings", true).value_or(std::vector<std::string>{});
  launch.variables = object.map("variables");
  launch.argv = object.texts("argv", false);
  if (launch.argv && (launch.argv->empty() || launch.argv->front().empty()))
    object.wrong("argv", "expected a command; leave it out for none");
  launch.environment = object.environment();
  launch.directory = object.directory();
  launch.terminal = object.terminal("terminal");
  if (launch.terminal && !launch.argv) object.wrong("terminal", "there is no command to have it");
  return launch;
}

Demand read_list(Object& object) {
  List list;
  list.workspace = object.workspace();
  list.path = object.path(/*may_be_empty=*/true);
  list.depth = object.number("depth", 1, 64);
  list.content = object.number("content", 0, kMostContents);
  list.total = object.number("total", 0, kMostContents);
  list.skip = object.texts("skip", true).value_or(std::vector<std::string>{});
  return list;
}

Demand read_open(Object& object) {
  std::string workspace = object.workspace();
  return Open{std::move(workspace), object.path(false)};
}

Demand read_write(Object& object) {
  Write write;
  write.workspace = object.workspace();
  write.path = object.path(false);
  write.mode = object.mode("mode");
  write.if_match = object.text("if_match", false);
  write.parents = object.boolean("parents");
  const std::string end = object.text("end", false);
  write.marked = end == "mark";
  if (!end.empty() && !write.marked) object.wrong("end", "expected \"mark\"");
  return write;
}

Demand read_delete(Object& object) {
  Delete order;
  order.workspace = object.workspace();
  order.path = object.path(false);
  order.if_match = object.text("if_match", false);
  order.recursive = object.boolean("recursive");
  return order;
}

Demand read_archive(Object& object) {
  Archive archive;
  archive.workspace = object.workspace();
  archive.path = object.path(true);
  const std::string way = object.text("way");
  archive.into = way == "in";
  if (way != "in" && way != "out") object.wrong("way", "expected \"in\" or \"out\"");
  return archive;
}

Demand read_adopt(Object& object) {
  Adopt adopt;
  adopt.workspace = object.workspace();
  adopt.path = object.text("path");
  const std::string owner = object.text("owner");
  adopt.chown = owner == "chown";
  if (owner != "chown" && owner != "keep") object.wrong("owner", "expected \"keep\" or \"chown\"");
  return adopt;
}

Demand read_claim(Object& object) { return Claim{object.workspace()}; }

Demand read_gone(Object&) { return Gone{}; }

Demand read_sweep(Object& object) { return Sweep{object.uid("uid")}; }

Demand read_selftest(Object&) { return Selftest{}; }

constexpr DemandKind<Demand> kDemands[] = {
    {"hello", read_hello},   {"prepare", read_prepare},  {"remove", read_remove},
    {"launch", read_launch}, {"list", read_list},        {"open", read_open},
    {"write", read_write},   {"delete", read_delete},    {"archive", read_archive},
    {"adopt", read_adopt},   {"claim", read_claim},      {"gone", read_gone},
    {"sweep", read_sweep},   {"selftest", read_selftest}};

}  // namespace

bool is_workspace_name(std::string_view name) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  return !name.empty() && name.size() <= 64 &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

bool is_inner_path(std::string_view path) {
  if (path.empty() || path.size() > 4095 || path.find('\0') != std::string_view::npos) return false;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const std::string_view part = path.substr(from, to - from);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    from = to + 1;
  }
  return true;
}

tl::expected<Request, Unread> read_request(std::string_view text) {
  return read_demand<Request, Demand>(text, kDemands);
}

std::size_t descriptors_of(const Demand& demand) {
  if (std::holds_alternative<Launch>(demand)) return 3;
  const bool one = std::holds_alternative<Prepare>(demand) ||
                   std::holds_alternative<Write>(demand) || std::holds_alternative<Archive>(demand);
  return one ? 1 : 0;
}

std::string answer_text(std::uint64_t id, std::string_view body) {
  return "{\"id\":" + std::to_string(id) + "," + std::string(body.substr(1));
}

std::string error_body(const Fault& fault) {
  using Json = nlohmann::ordered_json;
  // What was typed may be 64 KiB long, and so may a message about it: an answer has its bound too.
  constexpr std::size_t kLongest = 4096;
  Json error{{"code", code_name(fault.code)}, {"message", fault.message.substr(0, kLongest)}};
  if (fault.sys_errno != 0) error["errno"] = launcher::errno_name(fault.sys_errno);
  return Json{{"error", std::move(error)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace belljar::service
