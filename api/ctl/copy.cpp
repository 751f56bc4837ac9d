// cp: files and directories into a session's workspace, and out of it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "api/ctl/commands.hpp"
#include "api/ctl/terminal.hpp"
#include "api/ctl/tree.hpp"
#include "policy/base/result.hpp"

namespace belljar::ctl {
namespace {

constexpr std::size_t kPiece = std::size_t{256} << 10;

struct Place {
  std::string session;    ///< Empty: here.
  std::string path;       ///< In a session: below its workspace, without a slash at its end.
  bool into = false;      ///< It was written with a slash at its end: a directory.
  bool contents = false;  ///< With "/." at its end: what is in it, not itself.
  [[nodiscard]] bool standard() const { return session.empty() && path == "-"; }
};

/// "SESSION:PATH" where the colon comes before any slash.
Place place_of(const std::string& word) {
  Place place;
  const std::size_t colon = word.find(':');
  const bool inside = colon != std::string::npos && colon > 0 && word.find('/') > colon;
  place.path = inside ? word.substr(colon + 1) : word;
  if (inside) place.session = word.substr(0, colon);
  place.contents = place.path == "." || place.path.ends_with("/.");
  if (place.contents) place.path.pop_back();
  place.into = place.path.ends_with('/') || (inside && place.path.empty());
  while (place.path.ends_with('/') && (inside || place.path.size() > 1)) place.path.pop_back();
  if (!inside && place.path.empty()) place.path = ".";
  return place;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string joined(const std::string& directory, const std::string& name) {
  if (directory.empty() || name.empty()) return directory + name;
  return directory + '/' + name;
}

/// An absolute path is one below the workspace, as the session has it.
Done make_relative(const Client& client, Place& place) {
  if (!place.path.starts_with('/')) return {};
  const Json session = BELLJAR_TRY(client.get(session_path(place.session)));
  const std::string workspace = text_of(session, "workspace");
  if (place.path == workspace) {
    place.path.clear();
    return {};
  }
  if (workspace.empty() || !place.path.starts_with(workspace + '/'))
    return failed(FailureKind::kUsage,
                  place.path + ": only what is below the session's workspace can be copied" +
                      (workspace.empty() ? "" : ", which is " + workspace),
                  "belljarctl exec SESSION -- cat FILE, for what the command can read");
  place.path.erase(0, workspace.size() + 1);
  return {};
}

std::string files_target(const Place& place, const std::string& path) {
  std::string target = session_path(place.session) + "/files";
  for (std::size_t from = 0; from < path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    target += '/' + path_part(std::string_view(path).substr(from, to - from));
    from = to + 1;
  }
  return target;
}

std::string archive_target(const Place& place, const std::string& path) {
  return session_path(place.session) + "/archive?path=" + path_part(path);
}

enum class Kind { kNone, kFile, kDirectory };

bool is_listing(const Answer& answer) {
  return answer.headers.find("content-type").value_or("").starts_with("application/json");
}

/// What there is in the session: a directory is listed, a file is octets.
Outcome<Kind> kind_of(const Client& client, const Place& place) {
  if (place.path.empty()) return Kind::kDirectory;
  const Outcome<Answer> answer = client.call(Call("HEAD", files_target(place, place.path)));
  if (answer) return is_listing(*answer) ? Kind::kDirectory : Kind::kFile;
  if (answer.error().kind != FailureKind::kProblem) return tl::unexpected(answer.error());
  // A session that is not there is no file that is not there.
  if (answer.error().status == 404) BELLJAR_TRY(client.get(session_path(place.session)));
  if (answer.error().status == 404) return Kind::kNone;
  // Only a body says what is wrong.
  Call look("GET", files_target(place, place.path));
  look.sink = [](std::string_view) { return false; };
  BELLJAR_TRY(client.call(look));
  return tl::unexpected(answer.error());
}

bool is_directory(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

/// A source for a request's body.
std::function<Outcome<std::string>()> bytes_of(int file, const std::string& name) {
  return [file, name]() -> Outcome<std::string> {
    std::string piece(kPiece, '\0');
    for (;;) {
      const ssize_t got = read(file, piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return call_failed(errno, "read " + name);
      piece.resize(static_cast<std::size_t>(got));
      return piece;
    }
  };
}

// --- into a session

Done put(const Client& client, std::string target, std::string type,
         std::function<Outcome<std::string>()> source) {
  Call call("PUT", std::move(target));
  call.content_type = std::move(type);
  call.source = std::move(source);
  call.silence = std::chrono::minutes(2);  // A tar is answered when all of it has been made.
  BELLJAR_TRY(client.call(call));
  return {};
}

Done put_file(const Client& client, const Place& to, const std::string& path, int file,
              const std::string& name) {
  struct stat about {};
  std::string target = files_target(to, path) + "?parents=true";
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
    std::array<char, 16> mode{};
    std::snprintf(mode.data(), mode.size(), "&mode=%04o", about.st_mode & 0777);
    target += mode.data();
  }
  return put(client, target, "application/octet-stream", bytes_of(file, name));
}

Outcome<int> put_directory(const Client& client, const std::string& from, const Place& to,
                           const std::string& path) {
  const auto tree = BELLJAR_TRY(TreeReader::open(from, path));
  Place all = to;
  BELLJAR_CHECK(
      put(client, archive_target(all, ""), "application/x-tar", [&] { return tree->next(); }));
  for (const std::string& left_out : tree->left_out()) say(left_out);
  return tree->left_out().empty() ? 0 : 1;
}

Outcome<int> copy_in(const Client& client, const Place& from, Place to, bool tar) {
  BELLJAR_CHECK(make_relative(client, to));
  if (tar && !from.standard())
    return failed(FailureKind::kUsage, "--tar is about standard input and output: give - as one");
  if (tar) {
    BELLJAR_CHECK(put(client, archive_target(to, to.path), "application/x-tar",
                      bytes_of(STDIN_FILENO, "standard input")));
    return 0;
  }
  const Kind there = BELLJAR_TRY(kind_of(client, to));
  const bool directory = !from.standard() && is_directory(from.path);
  const bool below = there == Kind::kDirectory || (to.into && !directory);
  if (from.standard()) {
    if (below)
      return failed(FailureKind::kUsage, "standard input needs a name there: SESSION:PATH",
                    "--tar, for a tar that is to be unpacked there");
    BELLJAR_CHECK(put_file(client, to, to.path, STDIN_FILENO, "standard input"));
    return 0;
  }
  const std::string path =
      below && !from.contents ? joined(to.path, base_name(from.path)) : to.path;
  if (directory && there == Kind::kFile)
    return failed(FailureKind::kUsage, from.path + " is a directory, and " + to.path + " a file");
  if (directory) return put_directory(client, from.path, to, path);
  const UniqueFd file(open(from.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return call_failed(errno, "open " + from.path);
  BELLJAR_CHECK(put_file(client, to, path, file.get(), from.path));
  return 0;
}

// --- out of a session

/// The body of an answer goes to `file`.
Outcome<Answer> fetch(const Client& client, std::string target, const char* accept, int file,
                      const std::string& name) {
  Call call("GET", std::move(target));
  call.headers.emplace_back("Accept", accept);
  int error = 0;
  call.sink = [&](std::string_view bytes) {
    error = write_all(file, bytes);
    return error == 0;
  };
  Outcome<Answer> answer = client.call(call);
  if (error != 0) return call_failed(error, "write " + name);
  return answer;
}

Done get_file(const Client& client, const Place& from, int file, const std::string& name) {
  const Answer answer = BELLJAR_TRY(
      fetch(client, files_target(from, from.path), "application/octet-stream", file, name));
  if (!is_listing(answer)) return {};
  return failed(FailureKind::kBroken, from.path + " has become a directory meanwhile");
}

/// One that is not whole does not stay, unless it was there before.
Done get_file_to(const Client& client, const Place& from, const std::string& path) {
  const bool fresh = access(path.c_str(), F_OK) != 0;
  const UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666));
  if (!file.valid()) return call_failed(errno, "open " + path);
  const Done got = get_file(client, from, file.get(), path);
  if (!got && fresh) (void)unlink(path.c_str());
  if (!got && !fresh) say(path + " is not whole");
  return got;
}

Done get_directory(const Client& client, const Place& from, const std::string& directory) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return call_failed(errno, "make a pipe");
  UniqueFd reading(ends[0]), writing(ends[1]);
  Done made;
  std::thread maker([&] {
    made = write_tree(directory, reading.get());
    // What follows the tar's end; and who has failed does not take the rest.
    std::array<char, 4096> rest{};
    while (made && read(reading.get(), rest.data(), rest.size()) > 0) continue;
    reading.reset();
  });
  const Outcome<Answer> got = fetch(client, archive_target(from, from.path), "application/x-tar",
                                    writing.get(), "what comes");
  writing.reset();
  maker.join();
  const bool stopped_here = !got && got.error().kind == FailureKind::kLocal;
  if (!made && (got || stopped_here)) return made;
  if (!got) return tl::unexpected(got.error());
  return {};
}

Outcome<int> copy_out(const Client& client, Place from, const Place& to, bool tar) {
  BELLJAR_CHECK(make_relative(client, from));
  const Kind kind = BELLJAR_TRY(kind_of(client, from));
  if (kind == Kind::kNone) {
    Failure none;
    none.kind = FailureKind::kProblem;
    none.what = "there is no file \"" + from.path + "\" in the session " + from.session;
    none.remedy = "belljarctl exec " + from.session + " -- ls shows what is there";
    none.status = 404;
    none.code = "not_found";
    return tl::unexpected(none);
  }
  if (to.standard()) {
    if (tar && kind == Kind::kFile)
      return failed(FailureKind::kUsage,
                    "--tar is for a directory, and " + from.path + " is a file");
    if (kind == Kind::kFile)
      BELLJAR_CHECK(get_file(client, from, STDOUT_FILENO, "standard output"));
    else
      BELLJAR_TRY(fetch(client, archive_target(from, from.path), "application/x-tar", STDOUT_FILENO,
                        "standard output"));
    return 0;
  }
  if (tar) return failed(FailureKind::kUsage, "--tar is about standard input and output: give -");
  const bool below = is_directory(to.path) && !from.contents && !from.path.empty();
  const std::string path = below ? joined(to.path, base_name(from.path)) : to.path;
  if (kind == Kind::kFile) {
    BELLJAR_CHECK(get_file_to(client, from, path));
    return 0;
  }
  if (mkdir(path.c_str(), 0777) != 0 && !is_directory(path))
    return call_failed(errno, "make the directory " + path);
  BELLJAR_CHECK(get_directory(client, from, path));
  return 0;
}

}  // namespace

Outcome<int> cp(const Client& client, const CopyOptions& asked) {
  const Place from = place_of(asked.from), to = place_of(asked.to);
  if (from.session.empty() == to.session.empty())
    return failed(FailureKind::kUsage, "one of the two is SESSION:PATH, and only one",
                  "./a:b, for a file here whose name has a colon");
  signal(SIGPIPE, SIG_IGN);
  return to.session.empty() ? copy_out(client, from, to, asked.tar)
                            : copy_in(client, from, to, asked.tar);
}

}  // namespace belljar::ctl
