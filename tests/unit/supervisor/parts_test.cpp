// The parts that know no sandbox: journals, slots, events, keys, listeners.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "policy/base/unique_fd.hpp"
#include "supervisor/events.hpp"
#include "supervisor/idempotency.hpp"
#include "supervisor/journal.hpp"
#include "supervisor/listeners.hpp"
#include "supervisor/slots.hpp"

namespace belljar::supervisor {
namespace {

struct Loop {
  asio::io_context context;
  std::shared_ptr<TestClock> clock = std::make_shared<TestClock>(context);
  void settle() {
    context.restart();
    context.poll();
  }
  template <class T>
  std::shared_ptr<std::optional<T>> begin(Awaitable<T> work) {
    const auto result = std::make_shared<std::optional<T>>();
    asio::co_spawn(context, std::move(work),
                   [result](const std::exception_ptr&, T value) { *result = std::move(value); });
    settle();
    return result;
  }
};

std::shared_ptr<Journal> journal_of(Loop& loop, std::size_t head, std::size_t total) {
  JournalLimits limits;
  limits.head = head;
  limits.total = total;
  return std::make_shared<Journal>(loop.context.get_executor(), loop.clock, limits);
}

// Everything that a cursor gives, gaps as marks; false where the offsets do not add up.
bool read_all(Cursor& cursor, std::size_t most, std::string& text, std::uint64_t& missing) {
  while (true) {
    const std::uint64_t before = cursor.offset();
    const Piece piece = cursor.read(most);
    if (piece.from != before) return false;
    if (piece.kind == Piece::Kind::kNothing || piece.kind == Piece::Kind::kEnd) return true;
    if (piece.kind == Piece::Kind::kGap) {
      missing += piece.to - piece.from;
      text += "|";
    } else if (piece.data.empty() || piece.to - piece.from != piece.data.size()) {
      return false;
    }
    text += piece.data;
  }
}

TEST_CASE("a journal gives every byte at its offset while all of them fit") {
  Loop loop;
  const auto journal = journal_of(loop, 4, 1 << 20);
  journal->append("hello ");
  journal->append("world");
  Cursor cursor(journal);
  std::string text;
  std::uint64_t missing = 0;
  CHECK(read_all(cursor, 3, text, missing));
  CHECK(text == "hello world");
  CHECK(missing == 0);
  CHECK(journal->size() == 11);
  CHECK(journal->read(8, 2).data == "rl");
}

TEST_CASE("a journal keeps its head and its tail, and says which bytes are gone between them") {
  Loop loop;
  const auto journal = journal_of(loop, 100, 100);
  std::string written;
  for (int line = 0; written.size() < 500000; ++line) {
    const std::string text = "line " + std::to_string(line) + "\n";
    journal->append(text);
    written += text;
  }
  Cursor cursor(journal);
  std::string text;
  std::uint64_t missing = 0;
  REQUIRE(read_all(cursor, 4096, text, missing));
  const std::size_t bar = text.find('|');
  REQUIRE(bar != std::string::npos);
  CHECK(text.substr(0, bar) == written.substr(0, 100));
  CHECK(text.substr(bar + 1) == written.substr(100 + missing));
  CHECK(missing == journal->dropped());
  CHECK(journal->memory() < 100000);
  CHECK(journal->tail(50) == written.substr(written.size() - 50));
  CHECK(written.ends_with(journal->tail(1 << 20)));
}

TEST_CASE("a journal ends only when it is finished, and nothing comes after that") {
  Loop loop;
  const auto journal = journal_of(loop, 10, 1000);
  journal->append("abc");
  CHECK(journal->read(3, 9).kind == Piece::Kind::kNothing);
  journal->finish();
  CHECK(journal->read(3, 9).kind == Piece::Kind::kEnd);
  CHECK(journal->read(7, 9).kind == Piece::Kind::kEnd);
  journal->append("def");
  CHECK(journal->size() == 3);
}

TEST_CASE("one byte now and then does not cost a journal more memory than it may have") {
  Loop loop;
  const auto journal = journal_of(loop, 0, 50000);
  for (int byte = 0; byte < 20000; ++byte) {
    loop.clock->advance(Milliseconds(1000));
    journal->append("x");
  }
  CHECK(journal->memory() <= 50000);
  CHECK(journal->dropped() > 0);
}

TEST_CASE("a slow reader neither stops the journal nor another reader") {
  Loop loop;
  const auto journal = journal_of(loop, 10, 100000);
  Cursor fast(journal), slow(journal);
  std::string got, late, written;
  std::uint64_t missed_by_fast = 0, missed_by_slow = 0;
  for (int round = 0; round < 100; ++round) {
    const std::string block(5000, static_cast<char>('a' + round % 26));
    journal->append(block);
    written += block;
    REQUIRE(read_all(fast, 777, got, missed_by_fast));
  }
  REQUIRE(read_all(slow, 777, late, missed_by_slow));
  CHECK(got == written);
  CHECK(missed_by_fast == 0);
  CHECK(missed_by_slow > 300000);
  CHECK(late.size() + missed_by_slow == written.size() + 1);
}

TEST_CASE("whatever is written and read, a journal never gives a wrong byte") {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    Loop loop;
    const auto journal = journal_of(loop, random() % 3000, 20000 + random() % 50000);
    std::string written;
    std::uint64_t offset = 0;
    for (int step = 0; step < 200; ++step) {
      const std::string block(random() % 3000, static_cast<char>('a' + random() % 26));
      if (random() % 5 == 0) loop.clock->advance(Milliseconds(random() % 300));
      journal->append(block);
      written += block;
      const Piece piece = journal->read(offset, 1 + random() % 5000);
      if (piece.kind == Piece::Kind::kData) {
        REQUIRE(piece.from == offset);
        REQUIRE(written.compare(offset, piece.data.size(), piece.data) == 0);
      }
      if (random() % 2) offset = piece.to;
    }
    REQUIRE(journal->size() == written.size());
  }
}

TEST_CASE("a reader who waits is woken by the next byte, by the end, and by the time") {
  Loop loop;
  const auto journal = journal_of(loop, 10, 1000);
  Cursor cursor(journal);
  auto woken = loop.begin(cursor.wait(Milliseconds(1000)));
  CHECK_FALSE(woken->has_value());
  journal->append("x");
  loop.settle();
  CHECK(woken->value_or(false));
  (void)cursor.read(9);
  woken = loop.begin(cursor.wait(Milliseconds(1000)));
  loop.clock->advance(Milliseconds(999));
  loop.settle();
  CHECK_FALSE(woken->has_value());
  loop.clock->advance(Milliseconds(1));
  loop.settle();
  CHECK(woken->value_or(true) == false);
  woken = loop.begin(cursor.wait(Milliseconds(1000)));
  journal->finish();
  loop.settle();
  CHECK(woken->value_or(false));
}

Slots::Range range_of(std::uint32_t count, bool same_uid = false) {
  Slots::Range range;
  range.uid_base = 20000;
  range.port_base = 7700;
  range.count = count;
  range.same_uid = same_uid;
  return range;
}

TEST_CASE("slots are leased lowest first, each to one at a time") {
  Slots slots(range_of(3));
  auto first = slots.lease(), second = slots.lease(), third = slots.lease();
  REQUIRE((first && second && third));
  CHECK(first->slot().uid == 20000);
  CHECK(third->slot().port == 7702);
  CHECK_FALSE(slots.lease());
  second->give_back();
  third->give_back();
  second->give_back();
  CHECK(slots.free_count() == 2);
  CHECK(slots.lease()->slot().uid == 20001);
}

TEST_CASE("a slot that nobody said is clear is quarantined until a retry gives it back") {
  Slots slots(range_of(1));
  { const auto lost = slots.lease(); }
  CHECK(slots.quarantined_count() == 1);
  CHECK(slots.leased_count() == 0);
  CHECK_FALSE(slots.lease());
  { const auto again = slots.retry(0); }
  CHECK(slots.quarantined_count() == 1);
  CHECK_FALSE(slots.retry(1));
  auto retry = slots.retry(0);
  REQUIRE(retry);
  CHECK_FALSE(slots.retry(0));
  Lease moved = std::move(*retry);
  Lease& same = moved;
  moved = std::move(same);
  moved.give_back();
  CHECK(slots.free_count() == 1);
}

TEST_CASE("without a pool every slot has the one uid and a port of its own") {
  Slots slots(range_of(2, /*same_uid=*/true));
  auto first = slots.lease(), second = slots.lease();
  CHECK(first->slot().uid == second->slot().uid);
  CHECK(first->slot().port != second->slot().port);
}

Event event_of(const std::string& type) {
  Event event;
  event.type = type;
  return event;
}

TEST_CASE("who reads events slowly is told which he missed") {
  Loop loop;
  Events events(loop.context.get_executor(), loop.clock, 10);
  int heard = 0;
  events.on_event([&heard](const Event&) { ++heard; });
  for (int number = 0; number < 25; ++number) events.add(event_of("e"));
  CHECK(heard == 25);
  const Events::Page page = events.after(3, 4);
  REQUIRE(page.gap);
  CHECK(*page.gap == std::pair<std::uint64_t, std::uint64_t>(4, 16));
  REQUIRE(page.events.size() == 4);
  CHECK(page.events.front().id == 16);
  const Events::Page next = events.after(19, 100);
  CHECK_FALSE(next.gap);
  CHECK(next.events.size() == 6);
  CHECK(events.after(25, 100).events.empty());
  CHECK(events.after(900, 100).events.empty());
  const auto woken = loop.begin(events.wait_after(25, Milliseconds(50)));
  CHECK_FALSE(woken->has_value());
  events.add(event_of("f"));
  loop.settle();
  CHECK(woken->value_or(false));
}

IdempotencyStore::Key key_of(const std::string& client, const std::string& key) {
  IdempotencyStore::Key made;
  made.client = client;
  made.key = key;
  return made;
}

TEST_CASE("a request that is sent twice gets one answer, and another body with its key a refusal") {
  Loop loop;
  IdempotencyStore store(loop.context.get_executor(), loop.clock, {});
  auto first = loop.begin(store.claim(key_of("c", "k"), "digest", Milliseconds(100)));
  REQUIRE(*first);
  CHECK_FALSE((*first)->value().has_value());
  // The same again while the first is under way waits for it.
  auto second = loop.begin(store.claim(key_of("c", "k"), "digest", Milliseconds(100)));
  CHECK_FALSE(second->has_value());
  StoredAnswer answer;
  answer.status = 201;
  answer.body = "made";
  store.finish(key_of("c", "k"), answer);
  loop.settle();
  REQUIRE(*second);
  CHECK((*second)->value()->body == "made");
  auto other = loop.begin(store.claim(key_of("c", "k"), "another", Milliseconds(100)));
  CHECK((*other)->error().code == Code::kConflict);
  // Another client's key is another key.
  auto stranger = loop.begin(store.claim(key_of("d", "k"), "another", Milliseconds(100)));
  CHECK_FALSE((*stranger)->value().has_value());
}

TEST_CASE(
    "a key whose request came to nothing is free again, and one under way is waited for so long") {
  Loop loop;
  IdempotencyStore store(loop.context.get_executor(), loop.clock, {});
  (void)loop.begin(store.claim(key_of("c", "k"), "d", Milliseconds(100)));
  auto second = loop.begin(store.claim(key_of("c", "k"), "d", Milliseconds(100)));
  loop.clock->advance(Milliseconds(100));
  loop.settle();
  CHECK((*second)->error().code == Code::kBusy);
  auto third = loop.begin(store.claim(key_of("c", "k"), "d", Milliseconds(100)));
  store.abandon(key_of("c", "k"));
  loop.settle();
  REQUIRE(*third);
  CHECK_FALSE((*third)->value().has_value());
}

TEST_CASE("keys are forgotten by age and by number, but never one that is under way") {
  Loop loop;
  IdempotencyStore::Limits limits;
  limits.entries = 10;
  limits.keep = Milliseconds(1000);
  IdempotencyStore store(loop.context.get_executor(), loop.clock, limits);
  (void)loop.begin(store.claim(key_of("c", "under way"), "d", Milliseconds(0)));
  for (int number = 0; number < 100; ++number) {
    const auto key = key_of("c", std::to_string(number));
    (void)loop.begin(store.claim(key, "d", Milliseconds(0)));
    store.finish(key, {});
  }
  CHECK(store.size() <= 11);
  loop.clock->advance(Milliseconds(1000));
  auto again = loop.begin(store.claim(key_of("c", "99"), "other", Milliseconds(0)));
  CHECK((*again)->has_value());
  auto busy = loop.begin(store.claim(key_of("c", "under way"), "d", Milliseconds(0)));
  CHECK((*busy)->error().code == Code::kBusy);
}

TEST_CASE("only a listener of the very uid and port counts") {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
      "   0: 0100007F:1E14 00000000:0000 0A 00000000:00000000 00:00000000 00000000 20000        0 "
      "1\n"
      "   1: 0100007F:1E15 0100007F:9999 01 00000000:00000000 00:00000000 00000000 20000        0 "
      "2\n";
  CHECK(listeners_in(table) == std::vector<Listener>{{20000, 7700}});
  CHECK(listeners_in("").empty());
  CHECK(listeners_in("garbage\n\n: : :").empty());
}

TEST_CASE("a socket of ours is found when it listens, and not before") {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  socklen_t length = sizeof address;
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const std::uint16_t port = ntohs(address.sin_port);
  CHECK_FALSE(uid_listens(::getpid(), ::getuid(), port));
  ListenerTables tables;
  const TimePoint now{}, later = now + std::chrono::hours(1);
  CHECK_FALSE(tables.listens(::getpid(), ::getuid(), port, now));
  REQUIRE(::listen(socket.get(), 1) == 0);
  CHECK_FALSE(tables.listens(::getpid(), ::getuid(), port, now));
  CHECK(tables.listens(::getpid(), ::getuid(), port, later));
  CHECK_FALSE(tables.listens(::getpid(), ::getuid(), static_cast<std::uint16_t>(port + 1), later));
  CHECK_FALSE(tables.listens(0, ::getuid(), port, later));
  CHECK(uid_listens(::getpid(), ::getuid(), port));
  CHECK_FALSE(uid_listens(::getpid(), ::getuid() + 1, port));
  CHECK_FALSE(uid_listens(0, ::getuid(), port));
}

}  // namespace
}  // namespace belljar::supervisor
