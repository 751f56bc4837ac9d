#include "launcher/bwrap/command.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "launcher/bwrap/drop_in.hpp"
#include "launcher/failure.hpp"
#include "launcher/launch.hpp"
#include "launcher/sys/descriptors.hpp"
#include "launcher/sys/proc.hpp"

namespace belljar::launcher::bwrap {
namespace {

/// Of everything that is not the command's own.
constexpr int kFailed = 1;

class Speaker {
 public:
  void use_levels() { levels_ = true; }
  void warn(const std::string& text) const { say('4', text); }
  void complain(const std::string& text) const { say('3', text); }
  void complain(const Error& error) const {
    std::string text = error.what;
    if (error.sys_errno != 0) text += std::string(": ") + std::strerror(error.sys_errno);
    complain(text);
    if (!error.remedy.empty()) complain("remedy: " + error.remedy);
  }

 private:
  void say(char level, const std::string& text) const {
    std::string line = levels_ ? std::string("<") + level + ">" : std::string();
    line += "bwrap: " + text + "\n";
    std::fputs(line.c_str(), stderr);
  }

  bool levels_ = false;
};

/// The namespaces that were made, by the names and numbers of /proc/PID/ns.
std::vector<std::pair<std::string, std::string>> facts_of(const Plan& plan, int pid) {
  struct Kind {
    const char* file;
    std::uint64_t flag;
  };
  constexpr std::array<Kind, 6> kKinds = {{{"cgroup", CLONE_NEWCGROUP},
                                           {"ipc", CLONE_NEWIPC},
                                           {"mnt", CLONE_NEWNS},
                                           {"net", CLONE_NEWNET},
                                           {"pid", CLONE_NEWPID},
                                           {"uts", CLONE_NEWUTS}}};
  std::uint64_t flags = 0;
  for (const Step& step : plan.steps)
    if (const auto* create = std::get_if<CreateNamespaces>(&step.action)) flags = create->flags;
  std::vector<std::pair<std::string, std::string>> facts = {{"child-pid", std::to_string(pid)}};
  for (const Kind& kind : kKinds) {
    struct stat about {};
    const std::string path = std::to_string(pid) + "/ns/" + kind.file;
    if ((flags & kind.flag) != 0 && fstatat(sys::proc_directory(), path.c_str(), &about, 0) == 0)
      facts.emplace_back(std::string(kind.file) + "-namespace", std::to_string(about.st_ino));
  }
  return facts;
}

Status write_all(int fd, const std::string& text, const char* what) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return sys_failure(errno, std::string("Write to ") + what);
    done += static_cast<std::size_t>(wrote);
  }
  return {};
}

std::string as_json(const std::vector<std::pair<std::string, std::string>>& facts,
                    const char* before, const char* between, const char* after) {
  std::string text = std::string("{") + before;
  for (std::size_t i = 0; i < facts.size(); ++i)
    text += (i > 0 ? between : "") + ("\"" + facts[i].first + "\": ") + facts[i].second;
  return text + after;
}

/// Tells what was made, and waits for whoever writes the id maps. An error where it was not told:
/// then the command must not begin.
Status tell_of_birth(const Options& options, const Plan& plan, int pid) {
  const auto facts = facts_of(plan, pid);
  if (options.info_fd >= 0) {
    BELLJAR_CHECK(
        write_all(options.info_fd, as_json(facts, "\n    ", ",\n    ", "\n}\n"), "info_fd"));
    close(options.info_fd);
  }
  if (options.status_fd >= 0)
    BELLJAR_CHECK(
        write_all(options.status_fd, as_json(facts, " ", ", ", " }\n"), "json_status_fd"));
  if (options.userns_block_fd < 0) return {};
  char byte = 0;
  while (read(options.userns_block_fd, &byte, 1) < 0 && errno == EINTR) {
  }
  close(options.userns_block_fd);
  return {};
}

/// As a caller that waits for it would have died of the signal without us.
void die_likewise(const Record& record) {
  if (!record.signal || record.cause != Cause::kKilled || record.killed_by != "signal") return;
  std::fflush(nullptr);
  prctl(PR_SET_DUMPABLE, 0);
  signal(*record.signal, SIG_DFL);
  raise(*record.signal);
}

int status_of(const Record& record) {
  if (record.signal) return 128 + *record.signal;
  if (record.cause == Cause::kExited) return record.exit_code.value_or(255);
  return record.cause == Cause::kSetup ? kFailed : 255;
}

struct Prepared {
  Options options;
  Host host;
  Plan plan;
};

Result<Prepared> prepare(Options options, std::vector<int>& descriptors,
                         const ReadDescriptor& read) {
  const policy::Policy none;
  Host host = BELLJAR_TRY(observe_host(none));
  BELLJAR_CHECK(check(options, host.uid, host.gid));
  BELLJAR_CHECK(resolve_sources(options));
  BELLJAR_CHECK(read_filters(options, read));
  const Inherited inherited = BELLJAR_TRY(look_around(options, descriptors));
  Plan made = BELLJAR_TRY(plan(options, host, inherited));
  return Prepared{std::move(options), std::move(host), std::move(made)};
}

int launch_prepared(const Prepared& prepared, const Speaker& speaker) {
  const Options& options = prepared.options;
  policy::Policy policy;
  policy.name = "bwrap";
  Events events;
  // With SIGPIPE blocked, as everything is then.
  events.born = [&](int pid) { return tell_of_birth(options, prepared.plan, pid); };
  const Record record = launch(prepared.plan, policy, prepared.host, events);
  // Not before: the command would ignore it, too.
  signal(SIGPIPE, SIG_IGN);
  if (record.setup)
    for (const std::string& line : failure_lines(prepared.plan, *record.setup))
      speaker.complain(line);
  if (record.cause == Cause::kLost)
    speaker.complain(
        "the sandbox's first process was killed from outside before it could say how the command "
        "ended");
  const int status = status_of(record);
  if (options.status_fd >= 0 && !record.setup)
    // Who does not read needs no answer.
    (void)write_all(options.status_fd, "{ \"exit-code\": " + std::to_string(status) + " }\n",
                    "json_status_fd");
  die_likewise(record);
  return status;
}

}  // namespace

int run(const std::string& program, const std::vector<std::string>& words) {
  std::vector<int> descriptors = sys::inherited_descriptors();
  // What has been read is closed, and its number may be one of ours then.
  const ReadDescriptor read = [&descriptors](int fd) {
    std::erase(descriptors, fd);
    return sys::read_and_close(fd);
  };
  Speaker speaker;
  bool levels = false;
  Result<Options> options = parse(words, read, &levels);
  if (levels) speaker.use_levels();
  if (!options) {
    speaker.complain(options.error());
    return kFailed;
  }
  if (options->help || options->version) {
    const std::string text =
        options->help ? help_text(program) : "bubblewrap 0.11.1 (belljar " BELLJAR_VERSION ")\n";
    std::fputs(text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : kFailed;
  }
  if (options->command.empty()) {
    std::fputs(help_text(program).c_str(), stderr);
    return kFailed;
  }
  for (const std::string& warning : options->warnings) speaker.warn(warning);
  Result<Prepared> prepared = prepare(std::move(*options), descriptors, read);
  if (!prepared) {
    speaker.complain(prepared.error());
    return kFailed;
  }
  const int status = launch_prepared(*prepared, speaker);
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace belljar::launcher::bwrap
