// belljarctl's values: what terminals are shown, which keys detach, how a stream of output is put
// together, what an end's exit status is, and what a tar from a stranger may do.
#include <archive.h>
#include <archive_entry.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <filesystem>
#include <fstream>
#include <thread>

#include "api/ctl/connection.hpp"
#include "api/ctl/ending.hpp"
#include "api/ctl/follow.hpp"
#include "api/ctl/table.hpp"
#include "api/ctl/terminal.hpp"
#include "api/ctl/tree.hpp"
#include "policy/base64.hpp"

using namespace belljar;
using namespace belljar::ctl;

namespace {

std::string line_of(const char* stream, std::uint64_t offset, const std::string& text) {
  return dumped({{"type", "output"}, {"stream", stream}, {"offset", offset}, {"text", text}});
}

/// What a stream of lines comes to.
struct Heard {
  std::string out, err, gaps;
  OutputLines lines{{},
                    {[this](Stream stream, std::string_view bytes) {
                       (stream == Stream::kOut ? out : err) += bytes;
                       return true;
                     },
                     [this](Stream stream, std::uint64_t from, std::uint64_t to) {
                       gaps += std::string(stream_name(stream)) + std::to_string(from) + '-' +
                               std::to_string(to) + ' ';
                     }}};
  bool take(const std::string& line) { return lines.take(line); }
};

std::string passed(DetachKeys& keys, std::string_view typed) { return keys.pass(typed); }

DetachKeys default_keys() { return *DetachKeys::parse(kDetachKeys); }

struct Directory {
  std::string path;
  Directory() {
    char name[] = "/tmp/belljar-ctl-XXXXXX";
    path = mkdtemp(name);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() { std::filesystem::remove_all(path); }
};

struct Planted {
  std::string name;
  unsigned type = AE_IFREG;
  std::string content = {}, link = {}, hard_link = {};
  unsigned mode = 0644;
};

std::string tar_of(const std::vector<Planted>& entries) {
  std::string bytes(1 << 20, '\0');
  std::size_t used = 0;
  archive* tar = archive_write_new();
  archive_write_set_format_pax_restricted(tar);
  archive_write_open_memory(tar, bytes.data(), bytes.size(), &used);
  for (const Planted& planted : entries) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, planted.name.c_str());
    archive_entry_set_filetype(entry, planted.type);
    archive_entry_set_perm(entry, static_cast<mode_t>(planted.mode));
    archive_entry_set_size(entry, static_cast<la_int64_t>(planted.content.size()));
    if (!planted.link.empty()) archive_entry_set_symlink(entry, planted.link.c_str());
    if (!planted.hard_link.empty()) archive_entry_set_hardlink(entry, planted.hard_link.c_str());
    archive_write_header(tar, entry);
    archive_write_data(tar, planted.content.data(), planted.content.size());
    archive_entry_free(entry);
  }
  archive_write_close(tar);
  archive_write_free(tar);
  return bytes.substr(0, used);
}

/// "" or what was refused. In a process's own working directory, which is put back.
std::string unpack(const std::string& directory, const std::string& tar) {
  const auto before = std::filesystem::current_path();
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  std::thread feeder([&] {
    (void)!write(ends[1], tar.data(), tar.size());
    ::close(ends[1]);
  });
  const Done done = write_tree(directory, ends[0]);
  std::string rest(1 << 16, '\0');
  while (read(ends[0], rest.data(), rest.size()) > 0) continue;
  feeder.join();
  ::close(ends[0]);
  std::filesystem::current_path(before);
  return done ? "" : done.error().what;
}

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("nothing in a table is obeyed by the terminal that shows it") {
  CHECK(visible("plain, ünïcode 日本") == "plain, ünïcode 日本");
  CHECK(visible("\x1b[2J\x07") == "\\x1b[2J\\x07");
  CHECK(visible("a\nb\tc\rd") == "a\\nb\\tc\\rd");
  CHECK(visible("\xc2\x9b"
                "31m") == "\\x9b31m");
  CHECK(visible("\x7f") == "\\x7f");
  CHECK(visible("\xff\xc3") == "\\xff\\xc3");
  CHECK(visible("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(visible("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(visible("a\u202e"
                "b\u2066\u200b") == "a\\u{202e}b\\u{2066}\\u{200b}");
}

TEST_CASE("columns are as wide as what is in them, and the last is not padded") {
  Table table({"A", "LONG", "Z"});
  table.add({"wider", "", "x"});
  table.add({"ü", "b\n", "y"});
  CHECK(table.text() == "A      LONG  Z\nwider  -     x\nü      b\\n   y\n");
}

TEST_CASE("a command line is quoted where a shell would need it, and cut where it is long") {
  CHECK(command_text({"python3", "-c", "print('x y')", ""}, 60) ==
        "python3 -c 'print('\\''x y'\\'')' ''");
  CHECK(command_text({"ääääääääää"}, 8) == "'ääää...");
  CHECK(command_text({"12345678"}, 8) == "12345678");
}

TEST_CASE("each byte of a stream is written once, whatever comes twice") {
  Heard heard;
  CHECK(heard.take(line_of("stdout", 0, "hello ")));
  CHECK(heard.take(line_of("stderr", 0, "warn")));
  CHECK(heard.take(line_of("stdout", 0, "hello ")));
  CHECK(heard.take(line_of("stdout", 3, "lo world")));
  CHECK(heard.take(line_of("stdout", 4, "o w")));
  CHECK(heard.out == "hello world");
  CHECK(heard.err == "warn");
  CHECK(heard.gaps.empty());
  CHECK(heard.lines.at().out == 11);
}

TEST_CASE("bytes that are missing are told, whether or not the daemon says so") {
  Heard heard;
  CHECK(heard.take(line_of("stdout", 0, "ab")));
  CHECK(heard.take(line_of("stdout", 5, "fg")));
  CHECK(heard.take(R"({"type":"gap","stream":"stdout","from":7,"to":20})"));
  CHECK(heard.take(R"({"type":"gap","stream":"stdout","from":0,"to":9})"));
  CHECK(heard.take(R"({"type":"gap","stream":"stderr","from":0,"to":4})"));
  CHECK(heard.take(line_of("stdout", 20, "u")));
  CHECK(heard.out == "abfgu");
  CHECK(heard.gaps == "stdout2-5 stdout7-20 stderr0-4 ");
}

TEST_CASE("bytes that are no text come as base64") {
  Heard heard;
  CHECK(heard.take(dumped({{"type", "output"},
                           {"stream", "stderr"},
                           {"offset", 0},
                           {"base64", policy::base64("\xff\xfe")}})));
  CHECK(heard.err == "\xff\xfe");
}

TEST_CASE("a line that none of the daemon's would be ends the stream, and makes up no end") {
  for (const char* line :
       {"rubbish", "[]", "17", R"({"type":"output","stream":"both","offset":0,"text":"x"})",
        R"({"type":"output","stream":"stdout","offset":0})", R"({"type":"gap"})",
        R"({"type":"output","stream":"stdout","offset":0,"base64":"*"})"}) {
    Heard heard;
    CHECK_MESSAGE(!heard.take(line), std::string(line));
    CHECK(!heard.lines.broken().empty());
    CHECK(!heard.lines.record());
    CHECK(heard.out.empty());
  }
}

TEST_CASE("the record is the end's own, nothing follows it, and what is new is passed over") {
  Heard heard;
  CHECK(heard.take(R"({"type":"heartbeat"})"));
  CHECK(heard.take(R"({"type":"of another year"})"));
  CHECK(!heard.lines.record());
  CHECK(heard.take(R"({"type":"end","record":{"cause":"exited","exit_code":3}})"));
  REQUIRE(heard.lines.record());
  CHECK(exit_status(*heard.lines.record()) == 3);
  CHECK(!heard.take(line_of("stdout", 0, "late")));
  CHECK(heard.out.empty());
}

TEST_CASE("lines are put together at every split") {
  const std::string text = "{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
  for (std::size_t split = 0; split <= text.size(); ++split) {
    LineReader reader;
    std::vector<std::string> lines;
    bool stopped = false;
    const auto keep = [&](std::string_view line) {
      lines.emplace_back(line);
      return true;
    };
    CHECK(reader.feed(text.substr(0, split), keep, stopped));
    CHECK(reader.feed(text.substr(split), keep, stopped));
    CHECK(lines == std::vector<std::string>{"{\"a\":1}", "{\"b\":2}"});
  }
}

TEST_CASE("a line without an end is not kept for ever") {
  LineReader reader;
  bool stopped = false;
  const std::string piece(1 << 20, 'x');
  const auto keep = [](std::string_view) { return true; };
  for (int i = 0; i < 4; ++i) CHECK(reader.feed(piece, keep, stopped));
  CHECK(!reader.feed(piece, keep, stopped));
}

TEST_CASE("Ctrl-P Ctrl-Q detaches, and one key of it alone is the command's") {
  DetachKeys keys = default_keys();
  CHECK(passed(keys, "ab\x10") == "ab");
  CHECK(passed(keys, "c") ==
        "\x10"
        "c");
  CHECK(passed(keys, "\x10\x10") == "\x10");
  CHECK(!keys.detached());
  CHECK(passed(keys, "\x11never") == "");
  CHECK(keys.detached());
}

TEST_CASE("\"~.\" detaches at the beginning of a line only, and \"~~\" is one \"~\"") {
  DetachKeys keys = default_keys();
  CHECK(passed(keys, "a~.") == "a~.");
  CHECK(passed(keys, "\r~~.") == "\r~.");
  CHECK(passed(keys, "\r~x") == "\r~x");
  CHECK(passed(keys, "\r~") == "\r");
  CHECK(!keys.detached());
  CHECK(passed(keys, ".rest") == "");
  CHECK(keys.detached());
  DetachKeys first = default_keys();
  CHECK(passed(first, "~.") == "");
  CHECK(first.detached());
}

TEST_CASE("the keys that detach can be others, or none") {
  auto others = DetachKeys::parse("ctrl-a,d");
  REQUIRE(others);
  CHECK(others->pass("d\x01x\x01") == "d\x01x");
  CHECK(others->pass("d") == "");
  CHECK(others->detached());
  auto none = DetachKeys::parse("none");
  REQUIRE(none);
  CHECK(none->pass("~.\x10\x11") == "~.\x10\x11");
  CHECK(!none->detached());
  for (const char* wrong : {"", "ctrl-", "ctrl-1", "ab", "a,,b", "ctrl-p,"})
    CHECK_MESSAGE(!DetachKeys::parse(wrong), wrong);
}

TEST_CASE("exit statuses are those of belljar run") {
  const auto status = [](const char* record) { return exit_status(Json::parse(record)); };
  CHECK(status(R"({"cause":"exited","exit_code":7})") == 7);
  CHECK(status(R"({"cause":"signaled","signal":"SIGSEGV"})") == 139);
  CHECK(status(R"({"cause":"signaled","signal":"SIG40"})") == 168);
  CHECK(status(R"({"cause":"signaled","signal":9})") == 137);
  CHECK(status(R"({"cause":"wall_time","signal":"SIGKILL"})") == 124);
  CHECK(status(R"({"cause":"memory","signal":"SIGKILL"})") == 137);
  CHECK(status(R"({"cause":"output","exit_code":0})") == 137);
  CHECK(status(R"({"cause":"setup"})") == 125);
  CHECK(status(R"({"cause":"setup","exit_code":127})") == 127);
  CHECK(status(R"({"cause":"lost"})") == 125);
  CHECK(status(R"({})") == 125);
}

TEST_CASE("every cause but the command's own exit is told in words") {
  const auto why = [](const char* record) { return why_it_ended(Json::parse(record)); };
  CHECK(why(R"({"cause":"exited","exit_code":7})") == "");
  CHECK(why(R"({"cause":"signaled","signal":"SIGSEGV"})") ==
        "the command died of a signal (SIGSEGV)");
  CHECK(why(R"({"cause":"killed","by":"client"})") == "the command was killed by client");
  CHECK(why(R"({"cause":"wall_time"})") == "the command was ended at its wall time");
  CHECK(why(R"({"cause":"of another year"})") == "the command ended: of another year");
  CHECK(why(R"({})") == "the command ended: no cause is told");
  CHECK(why(R"({"cause":"setup","setup":{"step":"mount /x","reason":"no","errno":"ENOENT"}})") ==
        "the command was not started: mount /x: no: ENOENT");
}

TEST_CASE("a problem becomes what is wrong, what to do, and its code") {
  const Failure failure = problem_of(422, R"({"code":"invalid","detail":"the request is not valid",
    "remedy":"look","instance":"r1","errors":[{"pointer":"/a","detail":"no"},{"pointer":"/b",
    "detail":"\u001b[2J"}],"exit_code":127})");
  CHECK(failure.exit_code == 127);
  CHECK(failure_text(failure) ==
        "belljarctl: the request is not valid\nbelljarctl: /a: no\nbelljarctl: /b: \\x1b[2J\n"
        "belljarctl: try: look\nbelljarctl: code: invalid (HTTP 422, request r1)\n");
  const Failure other = problem_of(502, "<html>\x1b]0;x\x07");
  CHECK(other.code.empty());
  CHECK(failure_text(other).find("HTTP 502 and no problem of belljard's: <html>\\x1b]0;x\\x07") !=
        std::string::npos);
}

TEST_CASE("a URL is a host and a port, and nothing that would be left out silently") {
  const auto text = [](const char* url) {
    const auto address = parse_url(url);
    return address ? address->text() : "refused: " + address.error().what;
  };
  CHECK(text("http://127.0.0.1:8080") == "http://127.0.0.1:8080");
  CHECK(text("http://localhost:1/") == "http://localhost:1");
  CHECK(text("http://[::1]:8080") == "http://[::1]:8080");
  CHECK(text("http://host") == "http://host:80");
  CHECK(text("unix:/run/x.sock") == "unix:/run/x.sock");
  for (const char* wrong : {"", "127.0.0.1:8080", "https://h:1", "http://", "http://:1",
                            "http://h:", "http://h:x", "http://u:p@h:1", "http://h:1/path",
                            "http://h:1?x", "http://[::1", "unix:x", "http://h:1\n"})
    CHECK_MESSAGE(!parse_url(wrong), wrong);
}

TEST_CASE("parts of a path lead nowhere else") {
  CHECK(session_path("../a b/?x#\n%") == "/v1/sessions/..%2Fa%20b%2F%3Fx%23%0A%25");
}

TEST_CASE("names are bytes, whoever wrote the tar") {
  // As belljard writes them: UTF-8 or not, without a word about it.
  const Directory to;
  std::setlocale(LC_CTYPE, "C.UTF-8");
  std::string tar = tar_of({{"name \xff", AE_IFREG, "x"}});
  CHECK(unpack(to.path, tar) == "");
  CHECK(text_in(to.path + "/name \xff") == "x");
}

TEST_CASE("a tree goes into a tar and out of it, without what is neither file nor directory") {
  const Directory from, to;
  std::filesystem::create_directories(from.path + "/a/b");
  std::ofstream(from.path + "/a/b/file") << "content";
  std::ofstream(from.path + "/empty");
  std::ofstream(from.path + "/f\u00fc\n");
  std::ofstream(from.path + "/no UTF-8 \xff");
  std::filesystem::create_symlink("/etc/passwd", from.path + "/link");
  REQUIRE(mkfifo((from.path + "/fifo").c_str(), 0600) == 0);
  auto reader = TreeReader::open(from.path, "dir");
  REQUIRE(reader);
  std::string tar;
  for (;;) {
    const auto piece = (*reader)->next();
    REQUIRE(piece);
    if (piece->empty()) break;
    tar += *piece;
  }
  CHECK((*reader)->left_out().size() == 2);
  CHECK(unpack(to.path, tar) == "");
  CHECK(text_in(to.path + "/dir/a/b/file") == "content");
  CHECK(std::filesystem::exists(to.path + "/dir/empty"));
  CHECK(std::filesystem::exists(to.path + "/dir/f\u00fc\n"));
  CHECK(std::filesystem::exists(to.path + "/dir/no UTF-8 \xff"));
  CHECK(!std::filesystem::exists(std::filesystem::symlink_status(to.path + "/dir/link")));
  CHECK(!std::filesystem::exists(to.path + "/dir/fifo"));
}

TEST_CASE("a tar from a stranger writes nothing outside, and makes no links") {
  const Directory outside;
  for (const Planted& planted :
       std::vector<Planted>{{"/" + outside.path.substr(1) + "/x", AE_IFREG, "x"},
                            {"../x", AE_IFREG, "x"},
                            {"a/../../x", AE_IFREG, "x"},
                            {"link", AE_IFLNK, "", "/etc"},
                            {"hard", AE_IFREG, "", "", "/etc/passwd"},
                            {"fifo", AE_IFIFO},
                            {"device", AE_IFCHR}}) {
    const Directory to;
    CHECK_MESSAGE(unpack(to.path, tar_of({planted})) != "", planted.name);
    CHECK_MESSAGE(std::filesystem::is_empty(to.path), planted.name);
  }
  CHECK(std::filesystem::is_empty(outside.path));
}

TEST_CASE("a link that is there already is not followed, and no mode makes a program privileged") {
  const Directory outside, to;
  std::filesystem::create_symlink(outside.path, to.path + "/link");
  CHECK(unpack(to.path, tar_of({{"link/x", AE_IFREG, "x"}})) != "");
  CHECK(std::filesystem::is_empty(outside.path));
  const Planted planted{"program", AE_IFREG, "x", "", "", 06755};
  CHECK(unpack(to.path, tar_of({planted})) == "");
  struct stat about {};
  REQUIRE(stat((to.path + "/program").c_str(), &about) == 0);
  CHECK((about.st_mode & 07000) == 0);
}

TEST_CASE("a tar that was cut short is no whole one") {
  const Directory to;
  const std::string tar = tar_of({{"a", AE_IFREG, std::string(5000, 'x')}});
  CHECK(unpack(to.path, tar.substr(0, 3000)) != "");
}
