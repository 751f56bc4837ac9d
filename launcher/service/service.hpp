// The launch service: the only process of the daemon's that has privileges.
//
// It answers what comes over one socket, and waits for nothing but messages and the ends of its
// children. The other end of the socket is not trusted (docs/launch-service.md).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/service/channel.hpp"
#include "launcher/service/existing_workspace.hpp"
#include "launcher/service/helper_process.hpp"
#include "launcher/service/jobs.hpp"
#include "launcher/service/message.hpp"
#include "launcher/service/monitors.hpp"
#include "launcher/service/pool.hpp"
#include "launcher/service/served_policies.hpp"
#include "launcher/service/workspaces.hpp"
#include "policy/settings.hpp"

namespace belljar::service {

class Service {
 public:
  /// Becomes the service of this process: own process group, deaf to signals that ask for an end.
  /// `socket` is the end of belljard's. Complaints that keep it from nothing go to stderr.
  [[nodiscard]] static Result<std::unique_ptr<Service>> start(policy::Settings settings,
                                                              sys::UniqueFd socket);

  /// Serves until the socket ends. Then nothing of it is left.
  void run();

 private:
  /// No more answers wait for a reader; then no more is read.
  static constexpr std::size_t kMostAnswers = 1024;

  struct Outgoing {
    std::string text;
    std::vector<sys::UniqueFd> descriptors;
  };

  Service(policy::Settings settings, sys::UniqueFd socket)
      : settings_(std::move(settings)), socket_(std::move(socket)), jobs_(pool_) {}

  [[nodiscard]] Status prepare_process();
  [[nodiscard]] Status look_at_host();
  [[nodiscard]] Status open_places();
  void remove_stale_workspaces();

  /// Waits for one thing to happen and deals with it.
  void turn(bool reading, int most_ms = -1);
  /// Helpers, monitors and the zygote.
  [[nodiscard]] std::vector<pid_t> own_processes() const;
  void reap();
  void reaped(pid_t pid);
  void end_monitors();
  static void reap_all();
  /// Takes turns until no helper is left that could end, or `done` says so.
  void finish_jobs(std::chrono::seconds patience, const std::function<bool()>& done);
  void read_messages();
  void take(Received received);
  void flush();
  void reply(std::uint64_t id, std::string body, std::vector<sys::UniqueFd> descriptors = {});
  void reply(std::uint64_t id, const Fault& fault) { reply(id, error_body(fault)); }

  using Descriptors = std::vector<sys::UniqueFd>;
  void serve(std::uint64_t id, const Hello& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Prepare& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Remove& order, Descriptors descriptors);
  void launch(std::uint64_t id, const Launch& order, const std::string& text,
              Descriptors descriptors);
  void serve(std::uint64_t id, const List& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Adopt& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Claim& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Gone& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Open& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Write& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Delete& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Archive& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Sweep& order, Descriptors descriptors);
  void serve(std::uint64_t id, const Selftest& order, Descriptors descriptors);

  [[nodiscard]] Fault not_in_pool(uid_t uid) const;
  [[nodiscard]] std::string hello_json() const;
  [[nodiscard]] Outcome<void> check_launch(const Launch& order);
  [[nodiscard]] bool is_in_use(const std::string& workspace, std::optional<uid_t> uid);
  [[nodiscard]] Outcome<Finding> run_selftest() const;

  /// Answers `id` with what the job finds.
  void add_job(std::uint64_t id, Job job);
  /// The workspace, unless it is being made or removed.
  [[nodiscard]] Outcome<OpenedWorkspace> find_ready(const std::string& name) const;
  /// The directory that a session works in: its workspace, or the one that it has adopted.
  [[nodiscard]] Outcome<OpenedWorkspace> find_place(const std::string& name) const;
  /// The workspace, unless its directory is being adopted or handed over besides.
  [[nodiscard]] Outcome<OpenedWorkspace> find_settled(const std::string& name) const;
  [[nodiscard]] Outcome<void> check_adoption(const ExistingWorkspace& wanted, uid_t uid,
                                             bool chown);
  void finish_adoption(std::uint64_t id, const Adopt& order, uid_t uid, ExistingWorkspace found);
  /// A job that has to end before anybody else may have the workspace, or what it has adopted.
  [[nodiscard]] bool add_hand_over(const std::string& name, Job job);
  /// Gives what the workspace has adopted to `uid`.
  [[nodiscard]] Outcome<void> hand_over_to(const std::string& name, uid_t uid,
                                           std::function<void(Answer)> done);
  /// Where no hand-over goes but that of the workspace `name`.
  [[nodiscard]] OthersPlaces places_of_others(const std::string& name) const;
  [[nodiscard]] Outcome<OpenedWorkspace> make_workspace(const Prepare& order);
  /// A job in the workspace, under its session's uid: `work(directory, owner)`.
  void work_inside(std::uint64_t id, const std::string& name, Descriptors descriptors,
                   std::function<Outcome<Finding>(int, uid_t)> work,
                   std::chrono::seconds limit = std::chrono::seconds(30));
  /// Empties and removes the workspace, then `done(left)`; false when too much waits.
  bool remove_workspace(const std::string& name, OpenedWorkspace opened,
                        std::function<void(Answer)> done);

  policy::Settings settings_;
  sys::UniqueFd socket_;
  sys::UniqueFd child_signals_;
  Lifeline lifeline_;
  Pool pool_;
  std::string back_end_;
  std::unique_ptr<ServedPolicies> policies_;
  std::unique_ptr<Workspaces> workspaces_;
  std::unique_ptr<Monitors> monitors_;
  Jobs jobs_;
  std::deque<Outgoing> outgoing_;
  std::set<std::string> changing_;             ///< Workspaces that are being made or removed.
  std::map<uid_t, std::string> workspace_of_;  ///< Of each uid of the pool that has one.
  std::map<std::string, ExistingWorkspace> adopted_;  ///< By the name of the session's own.
  /// Workspaces whose directory is being adopted or handed over, and how many helpers are at it.
  std::map<std::string, std::size_t> handing_over_;
  bool looking_for_gone_ = false;
  bool ended_ = false;
  bool zygote_gone_ = false;
};

}  // namespace belljar::service
