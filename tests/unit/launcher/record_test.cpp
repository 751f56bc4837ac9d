#include "launcher/record.hpp"

#include <csignal>
#include <nlohmann/json.hpp>

#include "planning.hpp"

using namespace belljar::launcher;

TEST_CASE("a record is one line of JSON whatever bytes its texts hold") {
  Record record;
  record.cause = Cause::kSetup;
  record.setup.emplace();
  record.setup->error = "ENOENT";
  record.setup->reason = "no \xff\n\"such\" file";
  const std::string line = record.json();
  CHECK(line.find('\n') == std::string::npos);
  CHECK(nlohmann::json::parse(line)["setup"]["errno"] == "ENOENT");
}

TEST_CASE("the exit status is the command's own, 128 and the signal, or 124 out of time") {
  Record record;
  record.cause = Cause::kExited;
  record.exit_code = 3;
  CHECK(record.exit_status() == 3);
  record.exit_code.reset();
  record.signal = SIGTERM;
  CHECK(record.exit_status() == 143);
  record.cause = Cause::kWallTime;
  CHECK(record.exit_status() == 124);
}

TEST_CASE("a run that ended without a word is no success") {
  CHECK(Record().exit_status() == 125);
  CHECK(nlohmann::json::parse(Record().json())["cause"] == "lost");
}

TEST_CASE("degradations are listed with their control") {
  Record record;
  record.degraded.push_back({"identity", "groups stay"});
  const auto json = nlohmann::json::parse(record.json());
  CHECK(json["degraded"][0]["control"] == "identity");
}
