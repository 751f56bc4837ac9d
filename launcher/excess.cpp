#include "launcher/excess.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

namespace belljar::launcher {
namespace {

using namespace std::chrono_literals;
using policy::Limits;
using policy::Policy;

template <auto kMember>
bool is_set(const Limits& limits) {
  return (limits.*kMember).has_value();
}

template <class Value, class Least>
void lower(std::optional<Value>& limit, Least least) {
  limit = std::min<Value>(*limit, static_cast<Value>(least));
}

bool has_cpu(const Limits& limits) {
  const auto cpu = limits.rlimits.find("cpu");
  return cpu != limits.rlimits.end() && !cpu->second.unlimited;
}

/// What others have written must not count: nothing is writable but a directory of our own.
void write_in_the_ground_alone(Policy& policy) {
  for (auto& [target, mount] : policy.filesystem.mounts) {
    if (mount.type == policy::MountType::kBind) mount.readonly = true;
    mount.upper.clear();
    mount.work.clear();
  }
  policy::Workspace own;
  own.path.assign(1, '.');
  policy.filesystem.workspace = std::move(own);
}

void wait() { sleep(60); }

void spin() {
  while (std::clock() < 5 * CLOCKS_PER_SEC) {
  }
}

void flood() {
  constexpr int kBlocks = 4096;
  const std::vector<char> block(4096, 'x');
  for (int blocks = 0; blocks < kBlocks; ++blocks)
    if (write(STDOUT_FILENO, block.data(), block.size()) < 0) return;
}

/// Many small files: a single large one is stopped by the kernel's own limit of a file. Belljar
/// measures once more when the command has ended.
void fill() {
  constexpr int kFiles = 64;
  const std::vector<char> content(64 << 10, 'x');
  for (int number = 0; number < kFiles; ++number) {
    const int fd = open(std::to_string(number).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const bool wrote = fd >= 0 && write(fd, content.data(), content.size()) > 0;
    if (fd >= 0) close(fd);
    if (!wrote) return;
  }
}

void grow() {
  constexpr std::size_t kPiece = 1 << 20, kMost = 256;
  for (std::size_t pieces = 0; pieces < kMost; ++pieces) {
    void* piece = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) return;
    std::memset(piece, 1, kPiece);
  }
}

void multiply() {
  constexpr int kMost = 256;
  for (int children = 0; children < kMost; ++children) {
    const pid_t child = fork();
    if (child < 0) return;
    if (child == 0) {
      sleep(60);
      _exit(0);
    }
  }
}

constexpr std::array<Excess, 7> kExcesses = {
    {{"limits.wall_time", Cause::kWallTime, TrialKind::kWhole, false, is_set<&Limits::wall_time>,
      [](Policy& policy) { lower(policy.limits.wall_time, 300ms); }, wait},
     {"limits.cpu_time", Cause::kCpuTime, TrialKind::kWhole, false, is_set<&Limits::cpu_time>,
      [](Policy& policy) {
        lower(policy.limits.cpu_time, 300ms);
        policy.limits.rlimits.erase("cpu");
      },
      spin},
     {"limits.rlimits.cpu", Cause::kCpuTime, TrialKind::kWhole, false, has_cpu,
      [](Policy& policy) {
        policy.limits.rlimits["cpu"].value = 1;
        policy.limits.cpu_time.reset();
      },
      spin},
     {"limits.output", Cause::kOutput, TrialKind::kWhole, false, is_set<&Limits::output>,
      [](Policy& policy) { lower(policy.limits.output, 64 << 10); }, flood},
     {"limits.disk", Cause::kDisk, TrialKind::kSession, false, is_set<&Limits::disk>,
      [](Policy& policy) {
        lower(policy.limits.disk, 1 << 20);
        policy.limits.rlimits.erase("fsize");
        write_in_the_ground_alone(policy);
      },
      fill},
     {"limits.memory", Cause::kMemory, TrialKind::kWhole, true, is_set<&Limits::memory>,
      [](Policy& policy) {
        lower(policy.limits.memory, 64 << 20);
        for (const char* name : {"as", "data"}) policy.limits.rlimits.erase(name);
      },
      grow},
     {"limits.processes", Cause::kProcesses, TrialKind::kWhole, true, is_set<&Limits::processes>,
      [](Policy& policy) {
        lower(policy.limits.processes, 16);
        policy.limits.rlimits.erase("nproc");
      },
      multiply}}};

}  // namespace

std::span<const Excess> excesses() { return kExcesses; }

}  // namespace belljar::launcher
