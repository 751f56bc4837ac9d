// Every message of the service and the monitor goes wrong once in every way, and nothing stays.
#include <doctest/doctest.h>

#include <random>

#include "fake_service.hpp"

namespace belljar::supervisor {
namespace {

enum class Fault { kSilence, kError, kGarbage, kWrongShape, kTwice, kDeath, kNoDescriptors };
constexpr Fault kFaults[] = {Fault::kSilence,      Fault::kError, Fault::kGarbage,
                             Fault::kWrongShape,   Fault::kTwice, Fault::kDeath,
                             Fault::kNoDescriptors};

void misbehave(FakePeer& peer, const Json& request, Fault fault) {
  switch (fault) {
    case Fault::kSilence:
      return;
    case Fault::kError:
      return peer.fail(request, "system");
    case Fault::kGarbage:
      return peer.send("{");
    case Fault::kWrongShape:
      return peer.answer(request, Json::array({1, "left"}));
    case Fault::kTwice:
      peer.answer(request, {{"left", 0}});
      return peer.answer(request, {{"left", 0}});
    case Fault::kDeath:
      return peer.close();
    case Fault::kNoDescriptors:
      return peer.answer(request, Json::object());
  }
}

// Whatever has happened: what was leased is free or quarantined, nobody is live, nothing waits.
void check_that_nothing_stays(World& world) {
  world.pass(Milliseconds(200000));
  const Counts counts = world.supervisor->counts();
  CHECK(counts.slots_leased == 0);
  CHECK(counts.slots_free + counts.slots_quarantined == 5);
  CHECK(counts.starting + counts.running + counts.ending == 0);
  CHECK(counts.starts_waiting + counts.starts_under_way == 0);
  if (world.supervisor->healthy()) CHECK(world.service->monitors_alive() == 0);
  std::size_t started = 0, ended = 0;
  for (const Event& event : world.supervisor->events().after(0, 10000).events) {
    started += event.type == "session.starting";
    ended += event.type == "session.ended" || event.type == "session.failed";
  }
  CHECK(started == ended);
}

void live_and_end(World& world, const std::string& id) {
  const auto made = world.begin(world.supervisor->create(world.spec(id)));
  world.turn_until([&] { return made->has_value(); }, Milliseconds(100000));
  REQUIRE(made->has_value());
  if (!**made) return;
  const std::shared_ptr<Session> session = ***made;
  ProcessSpec command;
  command.argv = {"x"};
  const auto process = world.run(session->start(std::move(command)));
  if (process) (void)world.run((*process)->end());
  (void)world.run(session->list(ListRequest("")));
  CHECK(world.run(world.supervisor->end(id, EndedBy::kClient)).has_value());
  CHECK(world.run(session->wait_ended(Milliseconds(100000))));
  CHECK(session->end_record());
}

TEST_CASE("whatever the service does wrong at whichever message, each part is given back once") {
  for (const char* action : {"prepare", "launch", "list", "sweep", "remove"}) {
    for (const Fault fault : kFaults) {
      CAPTURE(action);
      CAPTURE(static_cast<int>(fault));
      const std::size_t before = open_descriptors();
      {
        World world;
        world.service->instead[action] = [&world, fault](const Json& request) {
          misbehave(*world.service->peer, request, fault);
        };
        live_and_end(world, "one");
        check_that_nothing_stays(world);
        // One that is well again gets its slots back.
        if (world.supervisor->healthy()) {
          world.service->instead.clear();
          world.pass(Milliseconds(20000));
          CHECK(world.supervisor->counts().slots_free == 5);
          live_and_end(world, "two");
          check_that_nothing_stays(world);
          CHECK(world.supervisor->counts().slots_free == 5);
        }
      }
      CHECK(open_descriptors() == before);
    }
  }
}

TEST_CASE("whatever a monitor does wrong at whichever message, each part is given back once") {
  for (const char* action : {"exec", "signal", "end", "kill"}) {
    for (const Fault fault : kFaults) {
      CAPTURE(action);
      CAPTURE(static_cast<int>(fault));
      const std::size_t before = open_descriptors();
      {
        World world;
        world.service->on_launch = [action, fault](FakeMonitor& monitor) {
          monitor.dies_of_term = false;
          monitor.instead[action] = [&monitor, fault](const Json& request) {
            misbehave(*monitor.peer, request, fault);
          };
          monitor.started();
        };
        live_and_end(world, "one");
        check_that_nothing_stays(world);
        CHECK(world.supervisor->counts().slots_free == 5);
        CHECK(world.service->workspaces.empty());
      }
      CHECK(open_descriptors() == before);
    }
  }
}

TEST_CASE("events that are wrong, unknown or out of their order do no harm to the daemon") {
  const char* const events[] = {
      "{\"event\":\"over\"}",
      "{\"event\":\"over\",\"record\":5}",
      "{\"event\":\"over\",\"record\":{\"cause\":5,\"signal\":[],\"exit_code\":\"x\"}}",
      "{\"event\":\"ended\"}",
      "{\"event\":\"ended\",\"process\":0,\"record\":{\"cause\":\"exited\"}}",
      "{\"event\":\"ended\",\"process\":77,\"record\":{}}",
      "{\"event\":\"ended\",\"process\":-1}",
      "{\"event\":\"started\",\"pid\":\"x\",\"degraded\":{}}",
      "{\"event\":\"started\",\"pid\":1,\"policy_digest\":7}",
      "{\"event\":\"stopped\",\"process\":{}}",
      "{\"event\":\"continued\",\"process\":0}",
      "{\"event\":\"of a later version\"}",
      "{\"event\":\"over\",\"record\":{\"cause\":\"setup\",\"setup\":{\"reason\":1}}}",
      "garbage"};
  for (const char* event : events) {
    for (const bool before_start : {true, false}) {
      CAPTURE(event);
      CAPTURE(before_start);
      World world;
      world.service->on_launch = [event, before_start](FakeMonitor& monitor) {
        if (before_start) monitor.peer->send(event);
        monitor.started();
        if (!before_start) monitor.peer->send(event);
      };
      live_and_end(world, "one");
      check_that_nothing_stays(world);
      CHECK(world.supervisor->counts().slots_free == 5);
    }
  }
}

// Damages messages as a seed says: the same ones in every run.
class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}

  std::vector<std::string> operator()(const std::string& text) {
    if (pick(3) != 0) return {text};
    switch (pick(6)) {
      case 0:
        return {};
      case 1:
        return {text, text};
      case 2:
        return {text.substr(0, pick(text.size()))};
      case 3:
        return {with_another_byte(text)};
      default:
        return {with_another_value(text)};
    }
  }

 private:
  std::size_t pick(std::size_t below) { return random_() % std::max<std::size_t>(below, 1); }

  std::string with_another_byte(std::string text) {
    if (!text.empty()) text[pick(text.size())] = static_cast<char>(pick(256));
    return text;
  }

  /// One member, somewhere, has another value or is gone.
  std::string with_another_value(const std::string& text) {
    Json message = Json::parse(text);
    Json* at = &message;
    while (at->is_structured() && !at->empty()) {
      const auto member = std::next(at->begin(), static_cast<std::ptrdiff_t>(pick(at->size())));
      if (pick(6) == 0) {
        at->erase(member);
        return message.dump();
      }
      at = &*member;
    }
    const Json values[] = {nullptr,
                           true,
                           0,
                           -1,
                           1,
                           77,
                           1ULL << 63,
                           1e300,
                           "",
                           "SIGKILL",
                           std::string(5000, 'x'),
                           Json::array({1}),
                           Json{{"cause", 1}}};
    *at = values[pick(std::size(values))];
    return message.dump();
  }

  std::mt19937 random_;
};

// Each call is answered, whatever the answer.
void live_somehow(World& world, const std::string& id) {
  const auto made = world.begin(world.supervisor->create(world.spec(id)));
  world.turn_until([&] { return made->has_value(); }, Milliseconds(200000));
  REQUIRE(made->has_value());
  if (!**made) return;
  const std::shared_ptr<Session> session = ***made;
  ProcessSpec command;
  command.argv = {"x"};
  const auto process = world.run(session->start(std::move(command)), Milliseconds(200000));
  (void)world.run(session->list(ListRequest("")), Milliseconds(200000));
  if (process) (void)world.run((*process)->end(), Milliseconds(200000));
  (void)world.run(world.supervisor->end(id, EndedBy::kClient), Milliseconds(200000));
  CHECK(world.run(session->wait_ended(Milliseconds(200000)), Milliseconds(300000)));
}

TEST_CASE(
    "however what the service and the monitors send is damaged, each part is given back once") {
  const std::size_t before = open_descriptors();
  std::size_t undamaged = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    World world;
    const auto damage = std::make_shared<Damage>(seed);
    const auto damaged = [damage](const std::string& text) { return (*damage)(text); };
    world.service->peer->damage = damaged;
    world.service->on_launch = [damaged](FakeMonitor& monitor) {
      monitor.peer->damage = damaged;
      monitor.started();
    };
    live_somehow(world, "one");
    check_that_nothing_stays(world);
    undamaged += world.supervisor->counts().slots_free == 5;
  }
  CHECK(undamaged > 0);
  CHECK(undamaged < 300);
  CHECK(open_descriptors() == before);
}

TEST_CASE("a daemon that goes away in the midst of everything lets everything go") {
  const std::size_t before = open_descriptors();
  for (int moment = 0; moment < 12; ++moment) {
    World world;
    world.service->on_launch = [moment](FakeMonitor& monitor) {
      if (moment % 2) monitor.started();
    };
    const auto first = world.begin(world.supervisor->create(world.spec("one")));
    const auto second = world.begin(world.supervisor->create(world.spec("two")));
    if (moment > 3) (void)world.begin(world.supervisor->end("one", EndedBy::kClient));
    if (moment > 7) world.pass(Milliseconds(moment * 200));
    world.supervisor.reset();
    world.settle();
    CHECK(world.service->peer->closed());
    // The fakes end by the end of their lifelines.
    world.pass(Milliseconds(100000));
    CHECK(world.service->monitors_alive() == 0);
  }
  CHECK(open_descriptors() == before);
}

}  // namespace
}  // namespace belljar::supervisor
