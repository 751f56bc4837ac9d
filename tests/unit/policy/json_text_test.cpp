// What is refused in the text itself, before any meaning.
#include <string>

#include "loading.hpp"
#include "policy/json_tree.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_in;
using testing::errors_of;

TEST_CASE("syntax errors name line, column and what was expected") {
  CHECK(errors_of("") == "p.json:1:1: the text is empty");
  CHECK(errors_of(" \n\t\n") == "p.json:1:1: the text is empty");
  CHECK(errors_of("{") ==
        "p.json:1:2: unexpected end of the text; expected a name in double quotes");
  CHECK(errors_of("{\"version\": 1\n  \"name\": \"x\"}") ==
        "p.json:2:3: unexpected string; expected \",\" or \"}\"");
  CHECK(errors_of("{\"version\" 1}") == "p.json:1:12: unexpected \"1\"; expected \":\"");
  CHECK(errors_of("{\"version\":: 1}") == "p.json:1:12: unexpected \":\"; expected a value");
  CHECK(errors_of("[1,,2]") == "p.json:1:4: unexpected \",\"; expected a value");
  CHECK(errors_of("[1 2]") == "p.json:1:4: unexpected \"2\"; expected \",\" or \"]\"");
  CHECK(errors_of("[1") == "p.json:1:3: unexpected end of the text; expected \",\" or \"]\"");
  CHECK(errors_of("]") == "p.json:1:1: unexpected \"]\"; expected a value");
}

TEST_CASE("a comma before a closing bracket is named as such") {
  CHECK(errors_of("{\"version\": 1,\n}") == "p.json:1:14: a comma before \"}\"; remove it");
  CHECK(errors_of("[1, ]") == "p.json:1:3: a comma before \"]\"; remove it");
}

TEST_CASE("words that are no JSON are refused at their beginning") {
  CHECK(errors_of("{\"version\": tru}") ==
        "p.json:1:13: \"tru\" is no JSON value; strings take double quotes");
  CHECK(errors_of("{version: 1}") ==
        "p.json:1:2: \"version\" is no JSON value; strings take double quotes");
  CHECK(errors_of("{'version': 1}") == "p.json:1:2: strings take double quotes");
  CHECK(errors_of("{} extra") ==
        "p.json:1:4: \"extra\" is no JSON value; strings take double quotes");
  CHECK(errors_of("{}\n{}") == "p.json:2:1: text after the end of the policy");
}

TEST_CASE("numbers that JSON does not have are refused") {
  CHECK(errors_of("{\"a\": NaN}") == "p.json:1:7: \"NaN\" is no number in JSON");
  CHECK(errors_of("{\"a\": -Infinity}") == "p.json:1:7: \"-Infinity\" is no number in JSON");
  CHECK(errors_of("[01]") == "p.json:1:2: a number must not begin with 0");
  CHECK(errors_of("[1.]") == "p.json:1:2: \"1.\" is no JSON number");
  CHECK(errors_of("[.5]") == "p.json:1:2: \".5\" is no JSON number");
  CHECK(errors_of("[1-2]") == "p.json:1:2: \"1-2\" is no JSON number");
  CHECK(errors_of("[1e999]") == "p.json:1:2: number out of range: \"1e999\"");
}

TEST_CASE("integers beyond 64 bits are refused, and the rest is still read") {
  CHECK(errors_in("\"x-a\": 18446744073709551616, \"nam\": 1") ==
        "p.json:1:21: number out of range: \"18446744073709551616\" does not fit into 64 bits\n"
        "p.json:1:43: nam: unknown key; did you mean \"name\"?");
  CHECK(errors_in("\"x-a\": 18446744073709551615") == "");
  CHECK(errors_in("\"x-a\": -9223372036854775809") ==
        "p.json:1:21: number out of range: \"-9223372036854775809\" does not fit into 64 bits");
}

TEST_CASE("damaged strings are refused at the damage") {
  CHECK(errors_of("{\"a") == "p.json:1:2: a string without its closing quote");
  CHECK(errors_of("{\"a\": \"b\n\"}") ==
        "p.json:1:9: a line break within a string; is a closing quote missing?");
  CHECK(errors_of("{\"a\": \"b\tc\"}") ==
        "p.json:1:9: a control character within a string must be escaped");
  CHECK(errors_of("{\"a\": \"\\q\"}") == "p.json:1:9: an invalid escape in a string");
  CHECK(errors_of("{\"a\": \"\\ud800\"}") == "p.json:1:14: an invalid escape in a string");
}

TEST_CASE("invalid UTF-8 is refused") {
  CHECK(errors_of("{\"a\": \"b\xff\"}") == "p.json:1:9: invalid UTF-8");
  CHECK(errors_of("{\"a\": \"\xc0\xaf\"}") == "p.json:1:8: invalid UTF-8");
  CHECK(errors_of("\xc3\xa9") == "p.json:1:1: unexpected character outside of a string");
}

TEST_CASE("NUL is refused, as an escape and as a byte that would hide the rest") {
  CHECK(errors_in("\"name\": \"a\\u0000b\"") ==
        "p.json:1:22: a string must not hold NUL (\\u0000)");
  CHECK(errors_in("\"x-\\u0000\": 1") == "p.json:1:14: a string must not hold NUL (\\u0000)");
  CHECK(errors_of(std::string("{\"version\":1}\0, \"rest\"", 22)) ==
        "p.json:1:14: a NUL byte in the text");
}

TEST_CASE("a duplicate key is refused with both places, at any depth") {
  CHECK(errors_of("{\"version\":1,\n \"name\":\"a\",\n \"name\":\"b\"}") ==
        "p.json:3:2: duplicate key \"name\"; first at 2:2");
  CHECK(errors_in("\"x-a\":[{\"b\":1,\"c\":2,\"b\":3}]") ==
        "p.json:1:34: duplicate key \"b\"; first at 1:22");
  CHECK(errors_in("\"x-a\":{\"b\":1,\"\\u0062\":3}") ==
        "p.json:1:27: duplicate key \"b\"; first at 1:21");
}

TEST_CASE("duplicate keys before a syntax error are reported with it") {
  CHECK(errors_of("{\"a\":1,\"a\":2,") ==
        "p.json:1:8: duplicate key \"a\"; first at 1:2\n"
        "p.json:1:14: unexpected end of the text; expected a name in double quotes");
}

TEST_CASE("duplicate keys at every open level are reported when the text breaks off") {
  CHECK(errors_of("{\"z\":1,\"z\":2,\"a\":{\"y\":1,\"y\":2,\"b\":{\"x\":1,\"x\":2,\"c\":[") ==
        "p.json:1:8: duplicate key \"z\"; first at 1:2\n"
        "p.json:1:25: duplicate key \"y\"; first at 1:19\n"
        "p.json:1:42: duplicate key \"x\"; first at 1:36\n"
        "p.json:1:53: unexpected end of the text; expected a value");
}

TEST_CASE("32 levels of nesting are read, 33 are refused") {
  const auto nested = [](std::size_t depth) {
    return "\"x-a\":" + std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(errors_in(nested(31)) == "");
  CHECK(errors_in(nested(32)) == "p.json:1:51: nested deeper than 32 levels");
}

TEST_CASE("more than 1 MiB is refused") {
  const std::string text = "{\"version\":1}";
  CHECK(errors_of(text + std::string((std::size_t{1} << 20) - text.size(), ' ')) == "");
  CHECK(errors_of(text + std::string((std::size_t{1} << 20) - text.size() + 1, ' ')) ==
        "p.json:1:1: the text is larger than 1 MiB");
}

TEST_CASE("overlong keys are refused") {
  CHECK(contains(errors_in("\"x-" + std::string(8200, 'a') + "\": 1"), "a key is longer than"));
}

TEST_CASE("comments are refused in .json and allowed in .jsonc") {
  const std::string text =
      "// first\n{\"version\":1, /* \" } */ \"namee\":\"x\" // last\n}\n/* end */";
  CHECK(errors_of(text) == "p.json:1:1: comments are allowed in .jsonc files only");
  Layers layers;
  layers.add_text(text, "p.jsonc", /*comments_allowed=*/true);
  CHECK(errors_of(layers) == "p.jsonc:2:25: namee: unknown key; did you mean \"name\"?");
}

TEST_CASE("a comment without its end is refused") {
  Layers layers;
  layers.add_text("{\"version\":1} /* oops", "p.jsonc", /*comments_allowed=*/true);
  CHECK(errors_of(layers) == "p.jsonc:1:15: a comment without its end");
}

TEST_CASE("only an object is a policy") {
  CHECK(errors_of("[]") == "p.json:1:1: expected an object such as {\"version\": 1}, got an array");
  CHECK(errors_of("5") ==
        "p.json:1:1: expected an object such as {\"version\": 1}, got the number 5");
}

TEST_CASE("a byte order mark does not disturb") {
  CHECK(errors_of("\xef\xbb\xbf{\"version\":1,\"namee\":\"x\"}") ==
        "p.json:1:14: namee: unknown key; did you mean \"name\"?");
}

TEST_CASE("columns are counted in bytes, lines by line feeds") {
  CHECK(errors_of("{\"version\":1,\r\n\"name\":\"\xc3\xa9\",\"b\":1}") ==
        "p.json:2:13: b: unknown key (one of: $schema, version, extends, vars, final, name, "
        "description, identity, namespaces, filesystem, network, syscalls, landlock, capabilities, "
        "limits, env, io, tests)");
}

TEST_CASE("the canonical form of a tree escapes and sorts") {
  Findings findings;
  const auto node = parse_json(R"({"b":[1,-2,1.5,true,null],"a":"\u001b[0m\"\\/\n\u009b"})", 0,
                               Comments::kRefused, findings);
  REQUIRE(node.has_value());
  std::string text;
  append_json(text, *node);
  CHECK(text == R"({"a":"\u001b[0m\"\\/\n\u009b","b":[1,-2,1.5,true,null]})");
}

}  // namespace
}  // namespace belljar::policy
