#include "base/json.h"

#include "base/throws.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string nested(size_t n, const std::string& open, const std::string& close) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += open;
  out += "1";
  for (size_t i = 0; i < n; ++i) out += close;
  return out;
}

TEST(Json, ParsesValues) {
  const auto value = parse_json<ordered_json>(R"({"b": [1, 2.5, "x", null], "a": true})", "x");
  EXPECT_EQ(value.dump(), R"({"b":[1,2.5,"x",null],"a":true})");
  EXPECT_EQ(parse_json<json>("7", "x"), 7);
}

TEST(Json, DepthIsLimited) {
  EXPECT_NO_THROW(parse_json<json>(nested(64, "[", "]"), "x"));
  for (const size_t n : {size_t{65}, size_t{1'000'000}}) {
    EXPECT_THROWS(parse_json<json>(nested(n, "[", "]"), "x"), Error, "x: more than 64 objects or lists are nested");
    EXPECT_THROWS(parse_json<ordered_json>(nested(n, "{\"a\":", "}"), "x"), Error, "more than 64");
  }
}

TEST(Json, SizeAndCountsAreLimited) {
  EXPECT_THROWS(parse_json<json>("[1,2,3]", "x", {.bytes = 6}), Error, "x: the JSON text has 7 bytes; the limit is 6");
  EXPECT_NO_THROW(parse_json<json>("[1,2,3]", "x", {.values = 4}));
  EXPECT_THROWS(parse_json<json>("[1,2,3]", "x", {.values = 3}), Error, "it has more than 3 values");
  EXPECT_THROWS(parse_json<ordered_json>(R"({"a":1,"b":2})", "x", {.keys = 1}), Error, "more than 1 keys");
}

TEST(Json, RepeatedKeysAreRejected) {
  EXPECT_THROWS(parse_json<json>(R"({"a":1,"b":{"a":2,"\u0061":3}})", "x"), Error,
                "x: the key \"a\" occurs twice in one object; remove one");
  EXPECT_EQ(parse_json<json>(R"({"a":1,"a":2})", "x", {.repeated_keys = true}).at("a"), 2);
}

TEST(Json, SyntaxErrorsNameLineAndColumn) {
  EXPECT_THROWS(parse_json<json>("root:x:0:0", "x"), JsonSyntaxError, "x: not JSON: parse error at line 1, column 1");
  EXPECT_THROWS(parse_json<json>("{\n\"\033", "x"), JsonSyntaxError, "line 2");
  for (const char* text : {"", "[1", "{} {}", "\"\xff\"", "nul"}) try {
      parse_json<json>(text, "x");
      ADD_FAILURE() << text;
    } catch (const JsonSyntaxError& error) {
      EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\xff'), std::string::npos) << error.what();
    }
}

TEST(Json, ValuesInMessagesAreShort) {
  EXPECT_EQ(printable_json(json(std::string("a\xff"))), "\"a\uFFFD\"");
  EXPECT_EQ(printable_json(ordered_json("\033\x7f")), "\"\\u001b\\x7f\"");
  EXPECT_EQ(printable_json(json(std::string(1000, 'x'))).size(), 100u);
}

TEST(Json, IntegersAreCheckedForRange) {
  EXPECT_EQ(integer_in(json(7), "step", 0, 10), 7);
  for (const char* text : {"-1", "11", "1.5", "1.0", "\"7\"", "null", "true", "18446744073709551615", "1e3", "[7]"})
    EXPECT_THROWS(integer_in(json::parse(text), "step", 0, 10), Error, "; it must be a whole number from 0 to 10");
}

}  // namespace
}  // namespace lockstep
