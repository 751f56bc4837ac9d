// The service's part in workspaces that are not its own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "launcher/service/service.hpp"
#include "launcher/sys/place.hpp"
#include "policy/quote.hpp"

namespace belljar::service {
namespace {

using Json = nlohmann::ordered_json;

/// Opening is over at once, or the file system does not answer.
constexpr std::chrono::seconds kOpeningLimit{10};

}  // namespace

Outcome<OpenedWorkspace> Service::find_place(const std::string& name) const {
  OpenedWorkspace opened = BELLJAR_TRY(find_ready(name));
  const auto adopted = adopted_.find(name);
  if (adopted == adopted_.end()) return opened;
  opened.directory = sys::UniqueFd(fcntl(adopted->second.directory.get(), F_DUPFD_CLOEXEC, 3));
  if (!opened.directory.valid()) return call_failed(errno, "duplicate a descriptor");
  return opened;
}

Outcome<OpenedWorkspace> Service::find_settled(const std::string& name) const {
  if (handing_over_.contains(name))
    return refuse(Code::kBusy, "the directory of the workspace " + name + " is being handed over");
  return find_ready(name);
}

/// Compares where they are, not what they are called: they may have been renamed since, and there
/// are links and bind mounts.
Outcome<void> Service::check_adoption(const ExistingWorkspace& wanted, uid_t uid, bool chown) {
  const std::string mounts = sys::mount_table();
  for (auto& [other, adopted] : adopted_) {
    if (auto place = sys::place_of(adopted.directory.get(), mounts))
      adopted.place = *std::move(place);
    if (sys::overlap(adopted.place, wanted.place) ||
        (adopted.device == wanted.device && adopted.inode == wanted.inode))
      return refuse(Code::kExists, std::string(policy::in_quotes(wanted.path)) +
                                       " is in use by a session that works in " +
                                       std::string(policy::in_quotes(adopted.path)));
  }
  const auto sessions = sys::place_of(workspaces_->root_directory(), mounts);
  if (!sessions || sys::overlap(*sessions, wanted.place))
    return refuse(Code::kRefused, "the workspaces of other sessions are there");
  if (wanted.owner == uid) return {};
  const std::string whose = std::string(policy::in_quotes(wanted.path)) + " belongs to uid " +
                            std::to_string(wanted.owner) + ", and the session has uid " +
                            std::to_string(uid);
  if (!chown) return refuse(Code::kRefused, whose + "; ask for owner \"chown\"");
  if (!pool_.privileged) return refuse(Code::kRefused, whose + ", which cannot be changed");
  return {};
}

bool Service::add_hand_over(const std::string& name, Job job) {
  job.workspace = name;
  const auto ended = [this, name] {
    if (--handing_over_[name] == 0) handing_over_.erase(name);
  };
  job.done = [ended, done = std::move(job.done)](Answer answer) {
    ended();
    done(std::move(answer));
  };
  ++handing_over_[name];
  if (jobs_.add(std::move(job))) return true;
  ended();
  return false;
}

OthersPlaces Service::places_of_others(const std::string& name) const {
  OthersPlaces others;
  for (const auto& [other, adopted] : adopted_)
    if (other != name) others.emplace_back(adopted.device, adopted.inode);
  struct stat sessions {};
  if (fstat(workspaces_->root_directory(), &sessions) == 0)
    others.emplace_back(sessions.st_dev, sessions.st_ino);
  return others;
}

Outcome<void> Service::hand_over_to(const std::string& name, uid_t uid,
                                    std::function<void(Answer)> done) {
  Job job;
  sys::UniqueFd held(fcntl(adopted_.at(name).directory.get(), F_DUPFD_CLOEXEC, 3));
  if (!held.valid()) return call_failed(errno, "duplicate a descriptor");
  job.kept = {held.get()};
  // Whose it leaves alone is looked up in the helper, when its turn has come.
  job.work = [this, fd = held.get(), uid, name] {
    keep_for_chown();
    return hand_over(fd, uid, pool_.group_of(uid), places_of_others(name));
  };
  job.owned.push_back(std::move(held));
  job.done = std::move(done);
  if (add_hand_over(name, std::move(job))) return {};
  return refuse(Code::kBusy, "too many requests wait already");
}

void Service::serve(std::uint64_t id, const Adopt& order, Descriptors) {
  const Outcome<OpenedWorkspace> home = find_settled(order.workspace);
  if (!home) return reply(id, home.error());
  if (const auto has = adopted_.find(order.workspace); has != adopted_.end())
    return reply(id, Fault{Code::kExists,
                           "the session works in " +
                               std::string(policy::in_quotes(has->second.path)) + " already",
                           0});
  Job job;
  job.limit = kOpeningLimit;
  job.work = [this, path = order.path] {
    if (pool_.privileged) keep_for_chown();
    return find_existing(settings_.workspace_roots, path);
  };
  job.done = [this, id, order, uid = home->owner](Answer answer) {
    if (!answer.ok) return reply(id, std::move(answer.body));
    Outcome<ExistingWorkspace> found = existing_of(std::move(answer), order.path);
    if (!found) return reply(id, found.error());
    finish_adoption(id, order, uid, *std::move(found));
  };
  if (!add_hand_over(order.workspace, std::move(job)))
    reply(id, Fault{Code::kBusy, "too many requests wait already", 0});
}

void Service::finish_adoption(std::uint64_t id, const Adopt& order, uid_t uid,
                              ExistingWorkspace found) {
  const Outcome<void> may = check_adoption(found, uid, order.chown);
  if (!may) return reply(id, may.error());
  const std::string answer = Json{{"ok", {{"path", order.path}}}}.dump();
  const bool hands_over = order.chown && pool_.privileged;
  found.handed_over = hands_over;
  // Held from here on, so that nobody else can have it meanwhile.
  adopted_.emplace(order.workspace, std::move(found));
  if (!hands_over) return reply(id, answer);
  // Nothing has removed or adopted it since: while this is under way it is busy.
  const auto done = [this, id, name = order.workspace, answer](Answer handed) {
    if (!handed.ok) adopted_.erase(name);
    reply(id, handed.ok ? answer : handed.body);
  };
  const Outcome<void> asked = hand_over_to(order.workspace, uid, done);
  if (asked) return;
  adopted_.erase(order.workspace);
  reply(id, asked.error());
}

void Service::serve(std::uint64_t id, const Claim& order, Descriptors) {
  const Outcome<OpenedWorkspace> home = find_ready(order.workspace);
  if (!home) return reply(id, home.error());
  const auto adopted = adopted_.find(order.workspace);
  if (adopted == adopted_.end())
    return reply(id, Fault{Code::kInvalid, "the session works in no directory of the caller's", 0});
  // With `keep` what others own there is theirs, whenever it came.
  if (!adopted->second.handed_over)
    return reply(id, std::string(R"({"ok":{"changed":0,"left_out":0}})"));
  const auto done = [this, id](Answer handed) { reply(id, std::move(handed.body)); };
  const Outcome<void> asked = hand_over_to(order.workspace, home->owner, done);
  if (!asked) reply(id, asked.error());
}

void Service::serve(std::uint64_t id, const Gone&, Descriptors) {
  if (looking_for_gone_) return reply(id, Fault{Code::kBusy, "it is being looked for already", 0});
  Job job;
  std::vector<std::pair<int, std::string>> held;
  for (const auto& [name, adopted] : adopted_) {
    sys::UniqueFd directory(fcntl(adopted.directory.get(), F_DUPFD_CLOEXEC, 3));
    if (!directory.valid()) return reply(id, call_failed(errno, "duplicate a descriptor").value());
    held.emplace_back(directory.get(), name);
    job.kept.push_back(directory.get());
    job.owned.push_back(std::move(directory));
  }
  job.work = [held = std::move(held)] { return find_gone(held); };
  job.done = [this, id](Answer answer) {
    looking_for_gone_ = false;
    reply(id, std::move(answer.body));
  };
  looking_for_gone_ = true;
  if (jobs_.add(std::move(job))) return;
  looking_for_gone_ = false;
  reply(id, Fault{Code::kBusy, "too many requests wait already", 0});
}

}  // namespace belljar::service
