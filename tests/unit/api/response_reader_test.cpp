// Answers of servers inside sandboxes: split anywhere they are the same, and what could be read in
// two ways is not read at all.
#include "api/http/response_reader.hpp"

#include <doctest/doctest.h>

using namespace belljar::api;
using State = ResponseReader::State;

namespace {

/// "200 abc" or "broken", and what is left of the bytes, of an answer that comes in pieces.
std::string read_in(std::string_view bytes, std::size_t piece,
                    ResponseReader::Of method = ResponseReader::Of::kOther) {
  ResponseReader reader(method);
  std::string buffer, body;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    buffer += bytes.substr(at, piece);
    reader.feed(buffer);
    if (reader.state() == State::kBody || reader.state() == State::kDone)
      body += reader.take_body();
  }
  if (reader.end() == State::kBroken) return "broken";
  return std::to_string(reader.head().status) + ' ' + body + '|' + buffer;
}

std::string read(std::string_view bytes, ResponseReader::Of method = ResponseReader::Of::kOther) {
  const std::string whole = read_in(bytes, bytes.size() + 1, method);
  for (std::size_t piece = 1; piece < bytes.size() && piece < 40; ++piece) {
    CAPTURE(piece);
    CHECK(read_in(bytes, piece, method) == whole);
  }
  return whole;
}

const std::string kOk = "HTTP/1.1 200 OK\r\n";

}  // namespace

TEST_CASE("an answer ends where its framing says, however it is split") {
  CHECK(read(kOk + "Content-Length: 3\r\n\r\nabcd") == "200 abc|d");
  CHECK(read(kOk + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\nd") ==
        "200 abc|d");
  CHECK(read(kOk + "\r\nabc") == "200 abc|");
  CHECK(read("HTTP/1.0 200 \r\n\r\n") == "200 |");
  CHECK(read("HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\nabc") == "204 |abc");
  CHECK(read("HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\nabc") == "304 |abc");
  CHECK(read("HTTP/1.1 100 Go\r\n\r\n" + kOk + "Content-Length: 1\r\n\r\nx") == "200 x|");
  CHECK(read("HTTP/1.1 101 Switch\r\nUpgrade: websocket\r\n\r\nraw") == "101 |raw");
  CHECK(read(kOk + "Content-Length: 3\r\n\r\nabc", ResponseReader::Of::kHead) == "200 |abc");
}

TEST_CASE("an answer that could be read in two ways, or that ends early, is broken") {
  for (const char* fields :
       {"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", "Content-Length: 1, 1\r\n\r\nx",
        "Content-Length: -1\r\n\r\n", "Content-Length: 0x1\r\n\r\nx",
        "Transfer-Encoding: identity\r\n\r\n", "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "X : y\r\n\r\n", "X: y\r\n z\r\n\r\n", "X: y\nZ: z\r\n\r\n", "X\r\n\r\n", "X: \x01\r\n\r\n",
        "Content-Length: 4\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "X: y\r\n"}) {
    CAPTURE(fields);
    CHECK(read(kOk + fields) == "broken");
  }
  for (const char* head :
       {"", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    CAPTURE(head);
    CHECK(read(head) == "broken");
  }
}

TEST_CASE("what is meant for the next hop is not passed on") {
  Headers headers;
  const std::vector<std::pair<const char*, const char*>> fields = {{"Connection", "close, X-One"},
                                                                   {"connection", "x-two"},
                                                                   {"X-One", "1"},
                                                                   {"X-TWO", "2"},
                                                                   {"X-Three", "3"},
                                                                   {"Keep-Alive", "5"},
                                                                   {"TE", "gzip"},
                                                                   {"Upgrade", "h2c"},
                                                                   {"Content-Length", "3"},
                                                                   {"Transfer-Encoding", "chunked"},
                                                                   {"Proxy-Authorization", "x"},
                                                                   {"Trailer", "x"}};
  for (const auto& [name, value] : fields) headers.add(name, value);
  const Headers kept = end_to_end(headers);
  REQUIRE(kept.all().size() == 1);
  CHECK(kept.all()[0].first == "X-Three");
}
