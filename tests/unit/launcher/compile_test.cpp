#include "launcher/compile.hpp"

#include <cstring>

#include "planning.hpp"

using namespace belljar::launcher;

namespace {

const Image& image_of(const std::vector<std::byte>& bytes) {
  return *reinterpret_cast<const Image*>(bytes.data());
}

const Op* ops_of(const std::vector<std::byte>& bytes) {
  return reinterpret_cast<const Op*>(bytes.data() + image_of(bytes).ops);
}

std::string text_at(const std::vector<std::byte>& bytes, std::uint32_t offset) {
  return reinterpret_cast<const char*>(bytes.data()) + offset;
}

}  // namespace

TEST_CASE("the same plan compiles to the same bytes") {
  const Plan plan = test::plan_of(test::preset("dev@1"), test::plain_host());
  CHECK(compile(plan, {}) == compile(plan, {}));
}

TEST_CASE("an image holds no pointer: it works from wherever it lies") {
  const Plan plan = test::plan_of(test::preset("dev@1"), test::plain_host());
  const std::vector<std::byte> bytes = compile(plan, {});
  const Image& image = image_of(bytes);
  CHECK(image.size == bytes.size());
  for (std::uint32_t i = 0; i < image.op_count; ++i) {
    CHECK(ops_of(bytes)[i].s0 < image.size);
    CHECK(ops_of(bytes)[i].s1 < image.size);
  }
  CHECK(image.pointers + (image.argc + image.envc + 2) * sizeof(char*) <= image.size);
}

TEST_CASE("operations name the steps that they come from, init's before the payload's") {
  const Plan plan = test::plan_of(test::preset("agent@1"), test::plain_host());
  const std::vector<std::byte> bytes = compile(plan, {});
  const Image& image = image_of(bytes);
  for (std::uint32_t i = 0; i < image.op_count; ++i) {
    const auto step = static_cast<std::size_t>(ops_of(bytes)[i].step);
    REQUIRE(step < plan.steps.size());
    CHECK(plan.steps[step].side == (i < image.payload_op ? Side::kInit : Side::kPayload));
  }
}

TEST_CASE("no policy's image tells the child to do as bwrap's arguments say") {
  for (const char* name :
       {"dev@1", "agent@1", "shell@1", "validator@1", "install@1", "strict@1", "bwrap@1"}) {
    Plan plan = test::plan_of(test::preset(name), test::plain_host());
    const std::vector<std::byte> bytes = compile(plan, {});
    const Image& image = image_of(bytes);
    CHECK(image.literal == 0);
    CHECK(image.direct == 0);
    CHECK(image.lingers == 0);
    CHECK(image.held == -1);
    for (std::uint32_t i = 0; i < image.op_count; ++i) {
      const Op& op = ops_of(bytes)[i];
      CHECK(op.parents == 0755);
      CHECK((op.code < OpCode::kAwaitLauncher || op.code > OpCode::kNewSession));
      CHECK((op.code < OpCode::kSetSignalMask || op.code > OpCode::kEnterDirectory));
    }
    plan.drop_in = DropIn{true, false, false, 5};
    const std::vector<std::byte> literal = compile(plan, {});
    CHECK(image_of(literal).literal == 1);
    CHECK(image_of(literal).direct == 1);
    CHECK(image_of(literal).held == 5);
  }
}

TEST_CASE("an id map is one line for one id") {
  const Plan plan = test::plan_of(
      test::policy_of(R"({"version":1,"identity":{"uid":20001,"inside_uid":0,"inside_gid":7}})"),
      test::root_host());
  const std::vector<std::byte> bytes = compile(plan, {});
  bool seen = false;
  for (std::uint32_t i = 0; i < image_of(bytes).op_count; ++i) {
    const Op& op = ops_of(bytes)[i];
    if (op.code != OpCode::kMapIds) continue;
    seen = true;
    CHECK(text_at(bytes, op.s0) == "0 20001 1");
    CHECK(text_at(bytes, op.s1) == "7 20001 1");
  }
  CHECK(seen);
}

TEST_CASE("the offsets of clocks are written as the kernel takes them") {
  using std::chrono::milliseconds;
  CHECK(time_offset_lines({}).empty());
  CHECK(time_offset_lines({milliseconds(1500), milliseconds(-30'000)}) ==
        "monotonic 1 500000000\nboottime -30 0\n");
  CHECK(time_offset_lines({milliseconds(-1), milliseconds(0)}) == "monotonic -1 999000000\n");
}
