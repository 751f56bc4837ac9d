// Sessions over time: from the slot to the last thing that is given back.
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "fake_service.hpp"

namespace belljar::supervisor {
namespace {

using State = Session::State;

std::vector<std::string> types_of(const World& world) {
  std::vector<std::string> types;
  for (const Event& event : world.supervisor->events().after(0, 10000).events)
    types.push_back(event.type);
  return types;
}

TEST_CASE("the supervisor starts with what the service says of itself") {
  const World world;
  REQUIRE(world.supervisor);
  CHECK(world.supervisor->service().uid_base == 20000);
  CHECK(world.supervisor->counts().slots_free == 5);
  CHECK(world.supervisor->healthy());
}

TEST_CASE("a service that says nothing sensible is not worked with") {
  for (const char* member : {"max_sessions", "privileged", "sessions_root", "uid_base"}) {
    const World world({}, [member](FakeService& service) { service.hello.erase(member); });
    CAPTURE(member);
    CHECK_FALSE(world.supervisor);
  }
  const World root({}, [](FakeService& service) { service.hello["uid_base"] = 0; });
  CHECK_FALSE(root.supervisor);
  Config config;
  config.port_base = 65533;
  const World ports(config);
  REQUIRE(ports.refused);
  CHECK(ports.refused->error.what.find("65535") != std::string::npos);
  const World silent({},
                     [](FakeService& service) { service.instead["hello"] = [](const Json&) {}; });
  REQUIRE(silent.refused);
  CHECK(silent.refused->code == Code::kTimeout);
}

TEST_CASE("a session gets the lowest slot, its files, and runs when its sandbox stands") {
  World world;
  SessionSpec spec = world.spec("one");
  WorkspaceFile file;
  file.path = "agent.py";
  file.content = "print(1)";
  spec.files.push_back(file);
  file = WorkspaceFile();
  file.path = "data";
  file.directory = true;
  spec.files.push_back(file);
  spec.settings = {"limits.memory=1GiB"};
  spec.complete = [](SessionSpec& change, const Place& place) -> Outcome<void> {
    change.command->environment["PORT"] = std::to_string(place.port);
    change.command->environment["HOME"] = place.workspace;
    return {};
  };
  const auto session = world.run(world.supervisor->create(std::move(spec)));
  REQUIRE(session);
  CHECK((*session)->state() == State::kRunning);
  CHECK((*session)->uid() == 20000);
  CHECK((*session)->port() == 7700);
  CHECK((*session)->back_end() == "modern");
  CHECK((*session)->policy_digest() == "sha256:of-the-resolved");
  const Json& launch = world.service->monitor("one").launch;
  CHECK(launch["environment"]["PORT"] == "7700");
  CHECK(launch["environment"]["HOME"] == "/sessions/one");
  CHECK(launch["policy"] == "builtin:agent@1");
  CHECK(launch["settings"][0] == "limits.memory=1GiB");
  CHECK(world.service->bodies["one"] ==
        "[{\"path\":\"agent.py\",\"mode\":\"0600\",\"size\":8},{\"path\":\"data\",\"directory\":"
        "true}]"
        "\nprint(1)");
  CHECK(world.supervisor->find("one") == *session);
  CHECK(world.supervisor->counts().running == 1);
}

TEST_CASE(
    "a second session of a name, a bad name, and an unknown policy are refused before anything") {
  World world;
  (void)world.session("one");
  const auto twice = world.run(world.supervisor->create(world.spec("one")));
  CHECK(twice.error().code == Code::kExists);
  for (const char* id : {"a/b", "..", "with space", "é"}) {
    const auto bad = world.run(world.supervisor->create(world.spec(id)));
    CHECK(bad.error().code == Code::kInvalid);
  }
  SessionSpec spec = world.spec("two");
  spec.policy = "unheard of";
  CHECK(world.run(world.supervisor->create(std::move(spec))).error().code == Code::kNotFound);
  CHECK(world.service->count("prepare") == 1);
  CHECK(world.supervisor->counts().slots_free == 4);
}

TEST_CASE("ids that are made up carry the node and never repeat") {
  Config config;
  config.node = "n7";
  World world(config);
  const auto first = world.run(world.supervisor->create(world.spec())).value();
  const auto second = world.run(world.supervisor->create(world.spec())).value();
  CHECK(first->id().starts_with("s-n7-"));
  CHECK(first->id() != second->id());
}

TEST_CASE("the session cap, the quota of a client and the bound of runs refuse, and say which") {
  Config config;
  config.sessions_of_a_client = 3;
  config.max_runs = 1;
  World world(config);
  for (const char* id : {"a", "b", "c"}) (void)world.session(id);
  const auto more = world.run(world.supervisor->create(world.spec("d")));
  CHECK(more.error().code == Code::kQuota);
  CHECK(more.error().limit == 3);
  SessionSpec spec = world.spec("d");
  spec.client = "other";
  spec.one_shot = true;
  CHECK(world.run(world.supervisor->create(std::move(spec))));
  spec = world.spec("e");
  spec.client = "other";
  spec.one_shot = true;
  CHECK(world.run(world.supervisor->create(std::move(spec))).error().limit == 1);
  spec = world.spec("e");
  spec.client = "other";
  CHECK(world.run(world.supervisor->create(std::move(spec))));
  spec = world.spec("f");
  spec.client = "other";
  const auto full = world.run(world.supervisor->create(std::move(spec)));
  CHECK(full.error().code == Code::kCapacity);
  CHECK(full.error().error.what.find("maximum concurrent sessions (5) reached") !=
        std::string::npos);
}

TEST_CASE(
    "a client's runs are counted apart from its sessions, so that one stands in for another") {
  Config config;
  config.sessions_of_a_client = 1;
  World world(config);
  (void)world.session("a");
  CHECK(world.run(world.supervisor->create(world.spec("b"))).error().code == Code::kQuota);
  SessionSpec spec = world.spec("b");
  spec.one_shot = true;
  CHECK(world.run(world.supervisor->create(std::move(spec))));
  spec = world.spec("c");
  spec.one_shot = true;
  CHECK(world.run(world.supervisor->create(std::move(spec))).error().code == Code::kQuota);
}

TEST_CASE("a refusal by the caller's own hook gives the slot back at once and makes nothing") {
  World world;
  SessionSpec spec = world.spec("one");
  spec.complete = [](SessionSpec&, const Place&) -> Outcome<void> {
    return refuse(Code::kInvalid, "config.yaml is no YAML");
  };
  const auto made = world.run(world.supervisor->create(std::move(spec)));
  CHECK(made.error().error.what == "config.yaml is no YAML");
  CHECK(world.supervisor->counts().slots_free == 5);
  CHECK(world.service->count("prepare") == 0);
}

TEST_CASE("a sandbox that cannot be built is told with its step, and nothing of it is left") {
  World world;
  world.service->on_launch = [](FakeMonitor& monitor) {
    Json setup = {{"step", "step 3 of 9"}, {"reason", "no such file: /srv"}, {"remedy", "make it"}};
    monitor.over("setup", {{"setup", setup}});
  };
  const auto made = world.run(world.supervisor->create(world.spec("one")));
  REQUIRE_FALSE(made);
  CHECK(made.error().code == Code::kSandbox);
  CHECK(made.error().setup.find("step 3 of 9") != std::string::npos);
  CHECK(made.error().error.remedy == "make it");
  CHECK(world.supervisor->find("one") == nullptr);
  CHECK(world.supervisor->counts().slots_free == 5);
  CHECK(world.service->workspaces.empty());
  CHECK(world.service->swept == std::vector<std::uint32_t>{20000});
  world.service->on_launch = [](FakeMonitor& monitor) { monitor.started(); };
  CHECK(world.run(world.supervisor->create(world.spec("one"))));
}

TEST_CASE("a session whose command ends is over, keeps its record, and gives all back") {
  World world;
  const auto session = world.session();
  world.service->monitor("one").write(0, 1, "bye\n");
  world.service->monitor("one").over("exited", {{"exit_code", 3}});
  CHECK(world.run(session->wait_ended(Milliseconds(5000))));
  CHECK(session->end_record()->cause == "exited");
  CHECK(session->end_record()->exit_code == 3);
  CHECK(session->process(0)->out()->tail(10) == "bye\n");
  CHECK(session->process(0)->end_record()->exit_code == 3);
  CHECK(world.service->workspaces.empty());
  CHECK(world.supervisor->counts().slots_free == 5);
  CHECK(world.supervisor->find("one") == session);
  CHECK(types_of(world) == std::vector<std::string>{"session.starting", "process.started",
                                                    "session.running", "session.ending",
                                                    "process.ended", "session.ended"});
}

TEST_CASE("a session that the daemon itself gives up was not killed by an operator") {
  World world;
  const auto session = world.session();
  CHECK(world.run(world.supervisor->end("one", EndedBy::kDaemon)).value());
  const Json record = Json::parse(session->end_record()->record);
  CHECK(record["cause"] == "killed");
  CHECK(record["by"] == "daemon");
}

TEST_CASE("a process that dies of the TERM of its deletion was killed by its client") {
  World world;
  const auto session = world.session();
  ProcessSpec command;
  command.argv = {"sleep"};
  const auto process = world.run(session->start(std::move(command))).value();
  CHECK(world.run(process->end()).value());
  const Json record = Json::parse(process->end_record()->record);
  CHECK(process->end_record()->cause == "killed");
  CHECK(record["by"] == "client");
}

TEST_CASE("a command that sees TERM ends by it, and the record says who asked") {
  World world;
  const auto session = world.session();
  const TimePoint before = world.clock->now();
  CHECK(world.run(world.supervisor->end("one", EndedBy::kClient)).value());
  CHECK(world.clock->now() - before < Milliseconds(1000));
  const Json record = Json::parse(session->end_record()->record);
  CHECK(record["cause"] == "killed");
  REQUIRE(record.contains("by"));
  CHECK(record["by"] == "client");
  CHECK(record["signal"] == "SIGTERM");
  CHECK(session->end_record()->signal == SIGTERM);
  CHECK(world.service->monitor("one").killed_by.empty());
  CHECK(world.run(world.supervisor->end("one", EndedBy::kClient)).value());
  CHECK(world.run(world.supervisor->end("nobody", EndedBy::kClient)).error().code ==
        Code::kNotFound);
}

TEST_CASE("DELETE of an agent that ignores TERM is answered within the grace and a second") {
  World world;
  const auto session = world.session();
  FakeMonitor& monitor = world.service->monitor("one");
  monitor.dies_of_term = false;
  const TimePoint before = world.clock->now();
  const auto ended = world.begin(world.supervisor->end("one", EndedBy::kClient));
  CHECK(monitor.processes[0].signals == std::vector<int>{SIGTERM, SIGCONT});
  CHECK(world.turn_until([&] { return ended->has_value(); }, Milliseconds(10000)));
  CHECK(ended->value().value());
  CHECK(world.clock->now() - before >= Milliseconds(2000));
  CHECK(world.clock->now() - before <= Milliseconds(3000));
  CHECK(monitor.killed_by == "client");
  CHECK(session->state() == State::kEnded);
}

TEST_CASE("DELETE is answered in time even when nobody answers, and the slot is not trusted") {
  World world;
  const auto session = world.session();
  FakeMonitor& monitor = world.service->monitor("one");
  monitor.answers = false;
  monitor.obeys_end_of_file = false;
  world.service->left[20000] = 2;
  const TimePoint before = world.clock->now();
  CHECK_FALSE(world.run(world.supervisor->end("one", EndedBy::kClient)).value());
  CHECK(world.clock->now() - before <= Milliseconds(3001));
  CHECK(world.run(session->wait_ended(Milliseconds(20000))));
  CHECK(world.supervisor->counts().slots_quarantined == 1);
  CHECK(session->end_record()->cause == "lost");
  // The next session gets another uid, and this one comes back when nothing of it is left.
  CHECK(world.session("two")->uid() == 20001);
  world.pass(Milliseconds(20000));
  CHECK(world.supervisor->counts().slots_quarantined == 1);
  world.service->left[20000] = 0;
  world.pass(Milliseconds(5000));
  CHECK(world.supervisor->counts().slots_quarantined == 0);
  CHECK(world.session("three")->uid() == 20000);
}

TEST_CASE("a workspace that cannot be removed keeps its slot until it can") {
  World world;
  const auto session = world.session();
  world.service->remove_leaves = 4;
  world.service->monitor("one").over("exited");
  CHECK(world.run(session->wait_ended(Milliseconds(10000))));
  CHECK(world.supervisor->counts().slots_quarantined == 1);
  world.service->remove_leaves = 0;
  world.pass(Milliseconds(6000));
  CHECK(world.service->workspaces.empty());
  CHECK(world.supervisor->counts().slots_free == 5);
}

TEST_CASE("a workspace that is busy is removed when it is so no more") {
  World world;
  const auto session = world.session();
  int asked = 0;
  world.service->instead["remove"] = [&](const Json& message) {
    if (++asked < 3) return world.service->peer->fail(message, "busy");
    world.service->peer->answer(message, {{"left", 0}});
  };
  world.service->monitor("one").over("exited");
  CHECK(world.run(session->wait_ended(Milliseconds(10000))));
  CHECK(asked == 3);
  CHECK(world.supervisor->counts().slots_quarantined == 0);
  CHECK(world.supervisor->counts().slots_free == 5);
}

TEST_CASE("a stale workspace of that name is not ours to remove") {
  World world;
  world.service->workspaces.insert("one");
  const auto made = world.run(world.supervisor->create(world.spec("one")));
  CHECK(made.error().code == Code::kExists);
  CHECK(world.service->count("remove") == 0);
  CHECK(world.service->count("sweep") == 0);
  CHECK(world.supervisor->counts().slots_free == 5);
}

TEST_CASE("sessions are ended side by side, not one after another") {
  World world;
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    (void)world.session(id);
    world.service->monitor(id).dies_of_term = false;
  }
  const TimePoint before = world.clock->now();
  world.run(world.supervisor->drain(Milliseconds(0)));
  CHECK(world.clock->now() - before < Milliseconds(3000));
  CHECK(world.supervisor->counts().slots_free == 5);
  for (const auto& session : world.supervisor->list())
    CHECK(Json::parse(session->end_record()->record)["by"] == "drain");
}

TEST_CASE("DELETE while a session is starting ends it, and its create says so") {
  World world;
  world.service->on_launch = [](FakeMonitor&) {};
  const auto made = world.begin(world.supervisor->create(world.spec("one")));
  CHECK(world.supervisor->find("one")->state() == State::kStarting);
  CHECK(world.run(world.supervisor->end("one", EndedBy::kClient)).value());
  world.settle();
  REQUIRE(*made);
  CHECK((*made)->error().code == Code::kEnded);
  CHECK(world.supervisor->find("one") == nullptr);
  CHECK(world.supervisor->counts().slots_free == 5);
  CHECK(world.service->workspaces.empty());
  CHECK(world.service->monitors_alive() == 0);
}

TEST_CASE("a start that takes too long is given up and cleared away") {
  World world;
  world.service->on_launch = [](FakeMonitor&) {};
  const auto made = world.run(world.supervisor->create(world.spec("one")));
  CHECK(made.error().code == Code::kTimeout);
  CHECK(world.service->monitors_alive() == 0);
  CHECK(world.supervisor->counts().slots_free == 5);
}

TEST_CASE("starts are bounded in number, wait their turn in order, and no longer than they may") {
  Config config;
  config.starts_at_once = 1;
  config.starts_waiting = 2;
  config.start_timeout = Milliseconds(60000);
  World world(config);
  world.service->on_launch = [](FakeMonitor&) {};
  const auto first = world.begin(world.supervisor->create(world.spec("a")));
  const auto second = world.begin(world.supervisor->create(world.spec("b")));
  const auto third = world.begin(world.supervisor->create(world.spec("c")));
  CHECK(world.supervisor->counts().starts_waiting == 2);
  const auto fourth = world.begin(world.supervisor->create(world.spec("d")));
  REQUIRE(*fourth);
  CHECK((*fourth)->error().code == Code::kBusy);
  world.service->on_launch = [](FakeMonitor& monitor) { monitor.started(); };
  world.service->monitor("a").started();
  world.settle();
  CHECK((*first)->has_value());
  CHECK((*second)->has_value());
  CHECK((*third)->has_value());
  CHECK(world.supervisor->counts().starts_under_way == 0);
  world.service->on_launch = [](FakeMonitor&) {};
  (void)world.begin(world.supervisor->create(world.spec("e")));
  const auto late = world.run(world.supervisor->create(world.spec("f")));
  CHECK(late.error().code == Code::kBusy);
  CHECK(late.error().error.what.find("10000 ms") != std::string::npos);
}

TEST_CASE("a session ends at its time, and a renewal just before that counts") {
  World world;
  SessionSpec spec = world.spec("one");
  spec.ttl = Milliseconds(10000);
  const auto session = world.run(world.supervisor->create(std::move(spec))).value();
  world.pass(Milliseconds(9900));
  CHECK(session->keep_alive(Milliseconds(5000)));
  world.pass(Milliseconds(4000));
  CHECK(session->state() == State::kRunning);
  CHECK(session->keep_alive(Milliseconds(10)));
  world.pass(Milliseconds(3000));
  CHECK(session->state() == State::kEnded);
  CHECK(session->end_record()->cause == "expired");
  CHECK(session->keep_alive(Milliseconds(5000)).error().code == Code::kEnded);
}

TEST_CASE("keep-alive moves the end forward only, and no further than the maximum") {
  Config config;
  config.max_ttl = Milliseconds(60000);
  World world(config);
  const auto session = world.session();
  CHECK(session->set_ttl(Milliseconds(30000)));
  const auto before = session->expires();
  CHECK(session->keep_alive(Milliseconds(1000)));
  CHECK(session->expires() == before);
  const auto beyond = session->keep_alive(Milliseconds(60001));
  CHECK(beyond.error().code == Code::kBeyondMaximum);
  CHECK(beyond.error().limit == 60);
  world.pass(Milliseconds(10000));
  CHECK(session->keep_alive(Milliseconds(55000)).error().code == Code::kBeyondMaximum);
  SessionSpec spec = world.spec("two");
  spec.ttl = Milliseconds(60001);
  CHECK(world.run(world.supervisor->create(std::move(spec))).error().code == Code::kBeyondMaximum);
}

TEST_CASE("a session outlives its owner by the grace, and not at all when he comes back") {
  World world;
  const auto owner = std::make_shared<Owner>(world.supervisor->clock());
  SessionSpec spec = world.spec("one");
  spec.owner = owner;
  const auto session = world.run(world.supervisor->create(std::move(spec))).value();
  const auto other = world.session("other");
  world.pass(Milliseconds(20000));
  CHECK(session->state() == State::kRunning);
  owner->leave();
  world.pass(Milliseconds(4000));
  owner->come_back();
  world.pass(Milliseconds(20000));
  CHECK(session->state() == State::kRunning);
  owner->leave();
  world.pass(Milliseconds(4000));
  CHECK(session->state() == State::kRunning);
  world.pass(Milliseconds(3000));
  CHECK(session->state() == State::kEnded);
  CHECK(session->end_record()->cause == "owner_gone");
  CHECK(other->state() == State::kRunning);
}

TEST_CASE("an owner leaves with his process") {
  asio::io_context loop;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::pause());
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  REQUIRE(pidfd.valid());
  const auto owner = Owner::of_process(loop.get_executor(), steady_clock(loop), std::move(pidfd));
  loop.run_for(std::chrono::milliseconds(50));
  CHECK_FALSE(owner->left());
  ::kill(child, SIGKILL);
  loop.restart();
  loop.run_for(std::chrono::seconds(30));
  CHECK(owner->left());
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("a session is idle without calls, attached clients and running commands, and only then") {
  World world;
  SessionSpec with_command = world.spec("busy");
  with_command.idle = Milliseconds(10000);
  const auto busy = world.run(world.supervisor->create(std::move(with_command))).value();
  SessionSpec spec = world.spec("one");
  spec.command.reset();
  spec.idle = Milliseconds(10000);
  const auto session = world.run(world.supervisor->create(std::move(spec))).value();
  world.pass(Milliseconds(9000));
  session->touch();
  world.pass(Milliseconds(9000));
  {
    const Attachment attached = session->attach();
    world.pass(Milliseconds(30000));
  }
  ProcessSpec command;
  command.argv = {"sleep"};
  CHECK(world.run(session->start(std::move(command))));
  world.pass(Milliseconds(30000));
  CHECK(session->state() == State::kRunning);
  world.service->monitor("one").ended(1, "exited", {{"exit_code", 0}});
  world.pass(Milliseconds(14000));
  CHECK(session->state() == State::kEnded);
  CHECK(session->end_record()->cause == "idle");
  CHECK(busy->state() == State::kRunning);
}

TEST_CASE("a session without a time of its own may have the longest, whenever that is asked for") {
  World world;
  const auto session = world.session();
  CHECK(session->set_ttl(Milliseconds(30000)));
  world.pass(Milliseconds(1));
  const auto before = session->expires();
  CHECK(session->set_ttl(std::nullopt));
  CHECK(session->expires() > before);
}

TEST_CASE("what ends a whole sandbox is the cause of its processes too, and nobody's wish is") {
  for (const auto& [cause, told] : std::map<std::string, std::string>{{"memory", "memory"},
                                                                      {"disk", "disk"},
                                                                      {"cpu_time", "cpu_time"},
                                                                      {"exited", "killed"},
                                                                      {"signaled", "killed"},
                                                                      {"output", "killed"}}) {
    World world;
    const auto session = world.session();
    ProcessSpec command;
    command.argv = {"sleep"};
    const auto process = world.run(session->start(std::move(command))).value();
    world.service->monitor("one").over(cause);
    CHECK(world.run(process->wait(Milliseconds(1000))));
    const std::string& from = cause;  // Clang 14 captures no structured binding.
    CHECK_MESSAGE(process->end_record()->cause == told, from);
    CHECK(Json::parse(process->end_record()->record)["by"] == "session");
  }
}

TEST_CASE("a session without a command of its own stays until it is ended") {
  World world;
  SessionSpec spec = world.spec("one");
  spec.command.reset();
  const auto session = world.run(world.supervisor->create(std::move(spec))).value();
  CHECK_FALSE(world.service->monitor("one").launch.contains("argv"));
  CHECK(session->processes().empty());
  world.pass(Milliseconds(60000));
  CHECK(session->state() == State::kRunning);
  const TimePoint before = world.clock->now();
  CHECK(world.run(world.supervisor->end("one", EndedBy::kOperator)).value());
  CHECK(world.clock->now() - before < Milliseconds(1000));
  CHECK(world.service->monitor("one").killed_by == "operator");
}

TEST_CASE("a monitor that dies without a word makes its session lost, not ended well") {
  World world;
  const auto session = world.session();
  world.service->monitor("one").write(0, 1, "last words");
  world.service->monitor("one").die();
  CHECK(world.run(session->wait_ended(Milliseconds(5000))));
  CHECK(session->end_record()->cause == "lost");
  CHECK_FALSE(session->end_record()->exit_code);
  CHECK(session->process(0)->end_record()->cause == "lost");
  CHECK(session->process(0)->out()->tail(20) == "last words");
  CHECK(world.supervisor->counts().lost == 1);
  CHECK(world.supervisor->counts().slots_free == 5);
}

TEST_CASE("the death of the service ends every session, tells once, and refuses what comes") {
  World world;
  const auto one = world.session("one"), two = world.session("two");
  int told = 0;
  world.supervisor->on_service_lost([&told] { ++told; });
  world.service->die();
  CHECK(world.run(one->wait_ended(Milliseconds(10000))));
  CHECK(world.run(two->wait_ended(Milliseconds(10000))));
  CHECK(told == 1);
  CHECK_FALSE(world.supervisor->healthy());
  CHECK(one->end_record()->cause == "lost");
  CHECK(world.supervisor->counts().slots_free == 3);
  CHECK(world.supervisor->counts().slots_quarantined == 2);
  CHECK(world.run(world.supervisor->create(world.spec("three"))).error().code ==
        Code::kUnavailable);
}

TEST_CASE("draining refuses new sessions, lets the running ones go on, and then ends them") {
  World world;
  const auto session = world.session();
  const auto drained = world.begin([](std::shared_ptr<Supervisor> of) -> Awaitable<bool> {
    co_await of->drain(Milliseconds(30000));
    co_return true;
  }(world.supervisor));
  CHECK(world.run(world.supervisor->create(world.spec("two"))).error().code == Code::kDraining);
  world.pass(Milliseconds(29000));
  CHECK(session->state() == State::kRunning);
  world.pass(Milliseconds(4000));
  CHECK(session->state() == State::kEnded);
  CHECK(drained->has_value());
}

TEST_CASE("a second signal ends a drain's patience, and sessions that end by themselves its wait") {
  World world;
  const auto session = world.session();
  const auto drained = world.begin([](std::shared_ptr<Supervisor> of) -> Awaitable<bool> {
    co_await of->drain(Milliseconds(3600000));
    co_return true;
  }(world.supervisor));
  world.supervisor->hurry();
  world.pass(Milliseconds(3000));
  CHECK(drained->has_value());
  World other;
  const auto short_one = other.session();
  const auto done = other.begin([](std::shared_ptr<Supervisor> of) -> Awaitable<bool> {
    co_await of->drain(Milliseconds(3600000));
    co_return true;
  }(other.supervisor));
  other.service->monitor("one").over("exited");
  other.pass(Milliseconds(1000));
  CHECK(done->has_value());
}

TEST_CASE("ended sessions are kept for a time, as many as may be, and one-shots not at all") {
  Config config;
  config.retained_sessions = 2;
  config.retention = Milliseconds(60000);
  World world(config);
  for (const char* id : {"a", "b", "c"}) {
    (void)world.session(id);
    (void)world.run(world.supervisor->end(id, EndedBy::kClient));
  }
  SessionSpec spec = world.spec("run");
  spec.one_shot = true;
  const auto run = world.run(world.supervisor->create(std::move(spec))).value();
  world.service->monitor("run").over("exited", {{"exit_code", 0}});
  CHECK(world.run(run->wait_ended(Milliseconds(5000))));
  CHECK(world.supervisor->find("run") == nullptr);
  CHECK(world.supervisor->find("a") == nullptr);
  CHECK(world.supervisor->find("b") != nullptr);
  CHECK(world.supervisor->find("c") != nullptr);
  world.pass(Milliseconds(62000));
  CHECK(world.supervisor->list().empty());
}

TEST_CASE("a name is free again when its session has ended") {
  World world;
  const auto first = world.session("one");
  CHECK(world.run(world.supervisor->end("one", EndedBy::kClient)).value());
  const auto second = world.session("one");
  CHECK(first != second);
  CHECK(world.supervisor->find("one") == second);
  CHECK(world.supervisor->list().size() == 1);
}

TEST_CASE("without privileges nothing is swept: the uid is everybody's") {
  World world({}, [](FakeService& service) {
    service.hello["privileged"] = false;
    service.hello["uid"] = 1000;
  });
  const auto one = world.session("one"), two = world.session("two");
  CHECK(one->uid() == 1000);
  CHECK(two->uid() == 1000);
  CHECK(one->port() != two->port());
  CHECK(world.run(world.supervisor->end("one", EndedBy::kClient)).value());
  CHECK(world.service->count("sweep") == 0);
  CHECK(two->state() == State::kRunning);
}

TEST_CASE("a thousand sessions one after another leave the descriptors as they were") {
  World world;
  (void)world.session("warm");
  (void)world.run(world.supervisor->end("warm", EndedBy::kClient));
  world.pass(Milliseconds(1000));
  const std::size_t before = open_descriptors();
  for (int number = 0; number < 1000; ++number) {
    const std::string id = "s" + std::to_string(number);
    REQUIRE(world.run(world.supervisor->create(world.spec(id))));
    REQUIRE(world.run(world.supervisor->end(id, EndedBy::kClient)).value());
    world.service->monitors.erase(id);
  }
  world.pass(Milliseconds(1000));
  CHECK(open_descriptors() == before);
  CHECK(world.supervisor->counts().slots_free == 5);
  CHECK(world.supervisor->counts().created == 1001);
}

}  // namespace
}  // namespace belljar::supervisor
