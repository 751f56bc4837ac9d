#include <cap-ng.h>

#include <set>

#include "launcher/controls/control.hpp"
#include "planning.hpp"
#include "policy/names.hpp"

using namespace belljar::launcher;

TEST_CASE("every control says what it is for and how it is planned") {
  std::set<std::string_view> names;
  for (const Control* control : controls()) {
    CHECK(names.insert(control->name).second);
    CHECK_FALSE(control->purpose.empty());
    CHECK((control->require != nullptr));
    CHECK((control->plan != nullptr));
    CHECK((control->remedy != nullptr));
    CHECK(find_control(control->name) == control);
  }
  CHECK(find_control("no such control") == nullptr);
}

TEST_CASE("every step of a preset's plan belongs to a control of the table") {
  for (const char* name : {"agent@1", "dev@1", "strict@1"})
    for (const Step& step : test::plan_of(test::preset(name), test::plain_host()).steps)
      CHECK_MESSAGE(find_control(step.control) != nullptr, step.text());
}

TEST_CASE("probes have names of their own") {
  std::set<std::string_view> names;
  for (const Control* control : controls())
    for (const Probe& probe : control->probes) CHECK(names.insert(probe.name).second);
  CHECK(names.size() > 20);
}

TEST_CASE("capability names and numbers agree with libcap-ng") {
  for (const belljar::policy::NamedNumber& known : belljar::policy::capability_names()) {
    const std::string name(known.name);
    CHECK_MESSAGE(capng_name_to_capability(name.c_str() + 4) == static_cast<int>(known.number),
                  name);
  }
}

TEST_CASE("remedies of the commonest refusals tell what to do") {
  const belljar::policy::Policy policy = test::preset("agent@1");
  const Host host = test::plain_host();
  const Plan plan = test::plan_of(policy, host);
  for (const Step& step : plan.steps) {
    const FailedStep failed{&step, EPERM, {}};
    if (std::holds_alternative<CreateNamespaces>(step.action))
      CHECK(kNamespaces.remedy(failed, policy, host).find("seccomp") != std::string::npos);
    if (std::holds_alternative<MountProc>(step.action))
      CHECK(kProcAndDev.remedy(failed, policy, host).find("prefer") != std::string::npos);
  }
}
