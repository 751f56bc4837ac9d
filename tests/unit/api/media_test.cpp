// Forms, ranges, entity tags and offsets of streams, without a stream.
#include "api/v1/media.hpp"

#include <doctest/doctest.h>

using namespace belljar::api;

namespace {

Request with(std::string name, std::string value) {
  Request request;
  request.headers.add(std::move(name), std::move(value));
  return request;
}

int chosen(const char* accept) {
  const auto index =
      choose_type(with("Accept", accept), {"application/x-ndjson", "text/event-stream"});
  return index ? static_cast<int>(*index) : -1;
}

std::string range_of(const char* range, std::uint64_t size) {
  const RangeWish wish = wanted_range(with("Range", range), size);
  if (wish.kind == RangeWish::Kind::kAll) return "all";
  if (wish.kind == RangeWish::Kind::kNone) return "none";
  return std::to_string(wish.from) + ".." + std::to_string(wish.to);
}

}  // namespace

TEST_CASE("the form that a client likes best is taken, the first among equals") {
  CHECK(choose_type(Request(), {"a/b", "c/d"}) == 0);
  CHECK(chosen("*/*") == 0);
  CHECK(chosen("text/event-stream") == 1);
  CHECK(chosen("text/*, application/x-ndjson;q=0.5") == 1);
  CHECK(chosen("application/x-ndjson, text/event-stream") == 0);
  CHECK(chosen("application/x-ndjson;q=0.1, text/event-stream;q=0.11") == 1);
  CHECK(chosen("*/*;q=0.1, TEXT/Event-Stream") == 1);
  CHECK(chosen("*/*, application/x-ndjson;q=0") == 1);
  CHECK(chosen("text/html") == -1);
  CHECK(chosen("*/*;q=0") == -1);
  CHECK(chosen("") == -1);
}

TEST_CASE("a range is one range of bytes, and whatever else it may be is passed over") {
  CHECK(range_of("bytes=0-0", 10) == "0..1");
  CHECK(range_of("bytes=2-", 10) == "2..10");
  CHECK(range_of("bytes=2-99", 10) == "2..10");
  CHECK(range_of("bytes=0-18446744073709551615", 10) == "0..10");
  CHECK(range_of("bytes=-3", 10) == "7..10");
  CHECK(range_of("bytes=-99", 10) == "0..10");
  for (const char* beyond : {"bytes=10-", "bytes=-0", "bytes=99-100"})
    CHECK(range_of(beyond, 10) == "none");
  CHECK(range_of("bytes=0-", 0) == "none");
  CHECK(range_of("bytes=-1", 0) == "none");
  for (const char* other : {"bytes=5-4", "bytes=a-b", "bytes=-", "bytes=1-2,4-5", "items=1-2",
                            "bytes 1-2", "bytes=99999999999999999999-", "bytes=0x1-2", ""})
    CHECK(range_of(other, 10) == "all");
}

TEST_CASE("an entity tag is named among others, weak or not, and by the star") {
  CHECK(names_etag("\"a\"", "a"));
  CHECK(names_etag("\"b\", W/\"a\"", "a"));
  CHECK(names_etag("*", "a"));
  for (const char* field : {"", "a", "\"aa\"", "\"b\"", "\"a", "W/"})
    CHECK_FALSE(names_etag(field, "a"));
}

TEST_CASE("the id of an event is read back, and no other text is") {
  Offsets offsets;
  offsets.out = 12;
  offsets.err = UINT64_MAX;
  const auto back = parse_offsets(offsets_text(offsets));
  REQUIRE(back);
  CHECK(back->out == 12);
  CHECK(back->err == UINT64_MAX);
  for (const char* other : {"", "12", "stdout=1", "stdout=,stderr=", "stdout=1,stderr=x",
                            "stderr=1,stdout=1", "stdout=1, stderr=1", "stdout=-1,stderr=0"})
    CHECK_FALSE(parse_offsets(other));
}
