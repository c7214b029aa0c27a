#include "grammar/schema/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;
using Type = JsonValue::Type;

std::string json_error(std::string_view text) {
  return error_message<GrammarError>([&] { parse_json(text, "a.json"); });
}

TEST(JsonValueTest, KeepsDigitsAndOrder) {
  const std::string text =
      R"({"b":1.0,"a":[1e400,-0,12345678901234567890.10E-7],"":{"z":null,"y":true,"x":false}})";
  const JsonValue value = parse_json(text, "a.json");
  EXPECT_EQ(to_json(value), text);
  ASSERT_EQ(value.members.size(), 3U);
  EXPECT_EQ(value.members[0].name, "b");
  EXPECT_EQ(value.find("b")->text, "1.0");
  EXPECT_EQ(value.find("a")->items[0].text, "1e400");
  EXPECT_EQ(value.find("c"), nullptr);
  EXPECT_EQ(value.find("b")->find("b"), nullptr);
  EXPECT_TRUE(value.find("")->find("x")->is_boolean());
}

TEST(JsonValueTest, White) {
  EXPECT_EQ(to_json(parse_json(" \t\r\n[ 1 ,\n{ \"a\" : [ ] } ] \n", "a.json")), R"([1,{"a":[]}])");
}

TEST(JsonValueTest, Escapes) {
  const JsonValue value =
      parse_json(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\uDE00\u0000")", "a");
  EXPECT_EQ(value.text, std::string("\"\\/\b\f\n\r\tAé€😀\0", 19));
  EXPECT_EQ(to_json(value), "\"\\\"\\\\/\\b\\f\\n\\r\\tAé€😀\\u0000\"");
  EXPECT_EQ(to_json_string("\x1f\x7f"), "\"\\u001f\x7f\"");
}

TEST(JsonValueTest, HalfSurrogatePairs) {
  for (const char* text : {R"("\ud83d")", R"("\ud83dx")", R"("\ud83d\n")", R"("\ud83dA")",
                           R"("\ude00")", R"("\ud83d\ud83d")"}) {
    EXPECT_THAT(json_error(text), HasSubstr("half a surrogate pair")) << text;
  }
}

TEST(JsonValueTest, ErrorsSayWhere) {
  EXPECT_THAT(json_error(""), HasSubstr("a.json:1:1: "));
  EXPECT_THAT(json_error("[1,\n 2,\n  x]"), HasSubstr("a.json:3:3: this is no JSON value"));
  EXPECT_THAT(json_error("{\"a\" 1}"), HasSubstr("a.json:1:6: ':' is missing"));
  EXPECT_THAT(json_error("[1 2]"), HasSubstr("a.json:1:4: ',' or ']'"));
  EXPECT_THAT(json_error("{} {}"), HasSubstr("a.json:1:4: there is text after"));
  EXPECT_THAT(json_error("{\"a\":1,\n\"a\":2}"), HasSubstr("the member 'a' stands here twice"));
  EXPECT_THAT(json_error("\"\xff\""), HasSubstr("UTF-8"));
}

TEST(JsonValueTest, TruncatedTextsSayWhatIsOpen) {
  EXPECT_THAT(json_error("{\"type\": \"object\", \n"),
              HasSubstr("a.json:2:1: the text ends within an object"));
  for (const char* text : {"{", "{ ", "{\"a\"", "{\"a\": ", "{\"a\": 1", "[{\"a\": [1]"}) {
    EXPECT_THAT(json_error(text), HasSubstr("the text ends within an object")) << text;
  }
  for (const char* text : {"[", "[1", "[1, ", "{\"a\": [{}"}) {
    EXPECT_THAT(json_error(text), HasSubstr("the text ends within an array")) << text;
  }
}

TEST(JsonValueTest, NoJson) {
  for (const char* text : {"01",          "-",         "+1",          "1.",
                           ".5",          "1e",        "1e+",         "tru",
                           "nul",         "[1,]",      "[,1]",        "[",
                           "{",           "{,}",       "{\"a\":}",    "{\"a\"}",
                           "{a:1}",       "\"a",       "\"\n\"",      "\"\\",
                           "\"\\x\"",     "\"\\u12\"", "\"\\u12g4\"", "'a'",
                           "NaN",         "Infinity",  "//",          "[1]]",
                           "{\"a\":1,}",  "-a",        "1 2",         "\xEF\xBB\xBF{}",
                           "\"\\U0041\"", "\"\\'\"",   "--1"}) {
    EXPECT_THAT(json_error(text), HasSubstr("a.json:")) << text;
  }
}

TEST(JsonValueTest, Depth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(json_error(nested(1'000)), "no error");
  EXPECT_THAT(json_error(nested(1'002)), HasSubstr("deeper than 1000"));
  EXPECT_THAT(json_error(std::string(1'000'000, '[')), HasSubstr("deeper than 1000"));
}

JsonValue random_value(std::mt19937& random, int depth) {
  static const std::vector<std::string> kNumbers = {"0", "-0", "1.50", "1E9", "-12e-3", "7"};
  JsonValue value;
  value.type = static_cast<Type>(random() % (depth > 0 ? 7 : 5));
  if (value.is(Type::kNumber)) {
    value.text = kNumbers[random() % kNumbers.size()];
  } else if (value.is(Type::kString)) {
    for (uint32_t i = random() % 5; i > 0; --i) {
      value.text += random() % 3 == 0 ? "é" : std::string(1, static_cast<char>(random() % 128));
    }
  } else if (value.is(Type::kArray)) {
    for (uint32_t i = random() % 4; i > 0; --i) {
      value.items.push_back(random_value(random, depth - 1));
    }
  } else if (value.is(Type::kObject)) {
    for (uint32_t i = random() % 4; i > 0; --i) {
      value.members.push_back(
          {std::string(i, static_cast<char>(random() % 128)), random_value(random, depth - 1)});
    }
  }
  return value;
}

TEST(JsonValueTest, RoundTripOfRandomValues) {
  std::mt19937 random(1);
  for (int i = 0; i < 2'000; ++i) {
    const std::string text = to_json(random_value(random, 4));
    EXPECT_EQ(to_json(parse_json(text, "random")), text);
  }
}

/// Either an error or a value that is written so that it reads the same; never a crash.
TEST(JsonValueTest, DamagedTexts) {
  std::mt19937 random(2);
  constexpr std::string_view kBytes = "{}[]\",:\\u0dD8truefalsn-+.eE \n\x01\x80\xC3\xFF";
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = to_json(random_value(random, 3));
    for (uint32_t changes = 1 + random() % 2; changes > 0; --changes) {
      text.insert(random() % (text.size() + 1), 1, kBytes[random() % kBytes.size()]);
      text.erase(random() % text.size(), random() % 2);
    }
    try {
      const std::string again = to_json(parse_json(text, "damaged"));
      EXPECT_EQ(to_json(parse_json(again, "again")), again);
      ++read;
    } catch (const GrammarError&) {
      continue;
    }
  }
  EXPECT_GT(read, 500);
}

}  // namespace
}  // namespace specdec
