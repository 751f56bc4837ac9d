// Bytes as text, and where they may be cut.
#include <doctest/doctest.h>

#include <string>

#include "policy/utf8.hpp"

using namespace belljar::policy;

TEST_CASE("what UTF-8 is, is taken, and nothing else") {
  for (const char* good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf",
                           "\xf4\x8f\xbf\xbf", "\xc2\x80"})
    CHECK_MESSAGE(is_utf8(good), good);
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3\x28", "a\xe2\x82", "\xe2\x28\xa1"})
    CHECK_MESSAGE(!is_utf8(bad), bad);
}

TEST_CASE("a character that is cut off at the end is held back, and nothing else is") {
  const std::string text = "a\xf0\x9f\x98\x80";
  for (std::size_t size = 1; size < text.size(); ++size)
    CHECK(whole_characters(text.substr(0, size)) == 1);
  CHECK(whole_characters(text) == text.size());
  CHECK(whole_characters("") == 0);
  // What is no UTF-8 anyway will not become any by waiting.
  CHECK(whole_characters("a\xff") == 2);
  CHECK(whole_characters("a\x80\x80\x80\x80") == 5);
  CHECK(whole_characters("\xed\xa0") == 2);
}

TEST_CASE("the rest of a character that began before is known") {
  CHECK(torn_beginning("\x9f\x98\x80z") == 3);
  CHECK(torn_beginning("\x80z") == 1);
  CHECK(torn_beginning("z") == 0);
  CHECK(torn_beginning("") == 0);
}
