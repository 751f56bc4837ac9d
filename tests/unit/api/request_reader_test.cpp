// What a stranger sends: which of it is a request, and that it does not matter how it is cut.
#include "api/http/request_reader.hpp"

#include <doctest/doctest.h>

namespace {

using namespace belljar::api;
using State = RequestReader::State;

constexpr std::size_t kLimit = 1000;

/// What becomes of bytes that come in two pieces: "status why", or "method target body|rest".
std::string outcome_of(std::string_view bytes, std::size_t cut) {
  RequestReader reader;
  std::string buffer;
  for (const std::string_view piece : {bytes.substr(0, cut), bytes.substr(cut)}) {
    buffer += piece;
    State before;
    do {
      before = reader.state();
      if (reader.feed(buffer) == State::kDecide) reader.accept_body(kLimit);
    } while (reader.state() != before);
  }
  if (reader.state() == State::kRefused)
    return std::to_string(reader.refusal().status) + ' ' + std::string(reader.refusal().why);
  if (reader.state() != State::kDone) return "more";
  const Request& request = reader.request();
  return request.method + ' ' + request.target + ' ' + request.body + '|' + buffer;
}

std::string outcome_of(std::string_view bytes) { return outcome_of(bytes, bytes.size()); }

const std::string kGood = "GET / HTTP/1.1\r\nHost: a\r\n";

}  // namespace

TEST_CASE("the same request split at every byte gives the same answer") {
  const std::string requests[] = {
      kGood + "\r\nGET /next",
      "POST /sessions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET",
      std::string("POST /s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n") +
          "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\nrest",
      "POST /s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n0\r\n\r\n",
      "POST /s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST /s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
      "GET / HTTP/1.1\nHost: a\n\n",
      "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
      "POST /s HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n",
      "\r\n" + kGood + "\r\n",
  };
  for (const std::string& request : requests) {
    CAPTURE(request);
    const std::string whole = outcome_of(request);
    CHECK(whole != "more");
    for (std::size_t cut = 0; cut <= request.size(); ++cut) {
      CAPTURE(cut);
      CHECK(outcome_of(request, cut) == whole);
    }
  }
}

TEST_CASE("a request and its body are read, and what follows stays") {
  CHECK(outcome_of(kGood + "\r\n") == "GET / |");
  CHECK(outcome_of("PUT /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nokGET") ==
        "PUT /x?y ok|GET");
  CHECK(outcome_of("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n"
                   "2\r\nok\r\n0\r\n\r\n") == "POST / ok|");
}

TEST_CASE("what proxies and servers read differently is refused") {
  const std::string fields[] = {
      "Content-Length: 5\r\nContent-Length: 5\r\n",
      "Content-Length: +5\r\n",
      "Content-Length: 5, 5\r\n",
      "Content-Length: 0x5\r\n",
      "Content-Length: -1\r\n",
      "Content-Length: 99999999999999999999\r\n",
      "Content-Length:\r\n",
      "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
      "Transfer-Encoding: xchunked\r\n",
      "Transfer-Encoding: identity\r\n",
      "Transfer-Encoding: gzip, chunked\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked, chunked\r\n",
      "Transfer-Encoding : chunked\r\n",
      "X: a\r\n b\r\n",
      "X: a\r\n\tb\r\n",
      " X: a\r\n",
      "X : a\r\n",
      "X\r\n",
      ": a\r\n",
      "X: a\rb\r\n",
      "X: a\nb: c\r\n",
      "Host: b\r\n",
      "X[: a\r\n",
      "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
      std::string("X: a\0b\r\n", 8),
  };
  for (const std::string& field : fields) {
    CAPTURE(field);
    CHECK(outcome_of(kGood + field + "\r\n").substr(0, 4) == "400 ");
  }
  CHECK(outcome_of(kGood + "X: a\r\n\r\n") == "GET / |");
}

TEST_CASE("request lines other than a method, a path and HTTP/1.1 are refused") {
  for (const std::string line :
       {"GET", "GET /", "GET  HTTP/1.1", "GET / / HTTP/1.1", " GET / HTTP/1.1", "GET\t/ HTTP/1.1",
        "GET http://a/ HTTP/1.1", "GET * HTTP/1.1", "GET a HTTP/1.1", "G(T / HTTP/1.1",
        "GET /\x80 HTTP/1.1", "GET / HTTP/1.1 ", "GET / http/1.1", "GET /%zz HTTP/1.1",
        "GET /%00 HTTP/1.1", "GET /%4 HTTP/1.1"}) {
    CAPTURE(line);
    CHECK(outcome_of(line + "\r\nHost: a\r\n\r\n").substr(0, 4) == "400 ");
  }
  CHECK(outcome_of("GET / HTTP/1.0\r\nHost: a\r\n\r\n").substr(0, 4) == "505 ");
  CHECK(outcome_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n").substr(0, 4) == "505 ");
  CHECK(outcome_of("GET / HTTP/1.1\r\n\r\n").substr(0, 4) == "400 ");
  CHECK(outcome_of("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n").substr(0, 4) == "400 ");
}

TEST_CASE("a head that is too large is refused before it has ended") {
  const std::string field = "X: " + std::string(1000, 'a') + "\r\n";
  std::string head = kGood;
  for (int i = 0; i < 31; ++i) head += field;
  CHECK(outcome_of(head + "\r\n") == "GET / |");
  for (int i = 0; i < 4; ++i) head += field;
  CHECK(outcome_of(head).substr(0, 4) == "431 ");
  CHECK(outcome_of("GET /" + std::string(9000, 'a')).substr(0, 4) == "414 ");
  std::string many = kGood;
  for (int i = 0; i < 101; ++i) many += "X: a\r\n";
  CHECK(outcome_of(many + "\r\n").substr(0, 4) == "431 ");
}

TEST_CASE("a body beyond its limit is refused, whether its length was told or not") {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  CHECK(outcome_of(post + "Content-Length: 1000\r\n\r\n" + std::string(1000, 'a')).size() > 1000);
  CHECK(outcome_of(post + "Content-Length: 1001\r\n\r\n") == "413 the body is too large");
  CHECK(outcome_of(post + "Content-Length: 99999999999\r\n\r\n") == "413 the body is too large");
  std::string chunks = post + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) chunks += "64\r\n" + std::string(100, 'a') + "\r\n";
  CHECK(outcome_of(chunks) == "413 the body is too large");
  CHECK(outcome_of(post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n").substr(0, 4) ==
        "400 ");
}

TEST_CASE("a path is split before it is decoded, so that a part can hold a slash") {
  Request request;
  REQUIRE(split_target("/sessions/..%2F..%2fetc/files?a=b", request));
  CHECK(request.path == std::vector<std::string>{"sessions", "../../etc", "files"});
  CHECK(request.query == "a=b");
  CHECK_FALSE(request.trailing_slash);
  REQUIRE(split_target("/sessions/", request));
  CHECK(request.path == std::vector<std::string>{"sessions"});
  CHECK(request.trailing_slash);
  REQUIRE(split_target("/", request));
  CHECK(request.path.empty());
  REQUIRE(split_target("//", request));
  CHECK(request.path == std::vector<std::string>{""});
}

TEST_CASE("an upgrade has all that RFC 6455 asks for, or is none") {
  const std::string fields =
      "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  const auto is_upgrade = [](const std::string& head) {
    RequestReader reader;
    std::string buffer = head;
    REQUIRE(reader.feed(buffer) == State::kDecide);
    return reader.request().upgrade;
  };
  CHECK(is_upgrade(kGood + fields + "\r\n"));
  CHECK_FALSE(is_upgrade("POST / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n"));
  CHECK_FALSE(is_upgrade(kGood + fields + "Content-Length: 3\r\n\r\n"));
  CHECK_FALSE(is_upgrade(kGood + fields + "Upgrade: websocket\r\n\r\n"));
  for (const char* without : {"Upgrade: websocket\r\n", "Sec-WebSocket-Version: 13\r\n",
                              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"}) {
    std::string rest = fields;
    rest.erase(rest.find(without), std::string(without).size());
    CHECK_FALSE(is_upgrade(kGood + rest + "\r\n"));
  }
}
