#include "grammar/json/json_string_decoder.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

constexpr Escapes kAny = {EscapeStyle::kAny};
constexpr Escapes kMinimal = {EscapeStyle::kMinimal};

struct Decoded {
  bool alive = true;
  bool idle = true;  ///< no character is unfinished
  std::u32string text;
};

Decoded decode(std::string_view body, const Escapes& escapes) {
  JsonStringDecoder decoder;
  Decoded result;
  for (const char byte : body) {
    std::optional<char32_t> point;
    if (!decoder.take(static_cast<uint8_t>(byte), escapes, point)) {
      result.alive = false;
      return result;
    }
    if (point) {
      result.text += *point;
    }
    EXPECT_EQ(point.has_value(), decoder.idle());
  }
  result.idle = decoder.idle();
  return result;
}

/// The text of a whole body, or nullopt.
std::optional<std::u32string> whole(std::string_view body, const Escapes& escapes) {
  const Decoded result = decode(body, escapes);
  return result.alive && result.idle ? std::optional(result.text) : std::nullopt;
}

TEST(JsonStringDecoderTest, AllEscapes) {
  EXPECT_EQ(whole(R"(\"\\\/\b\f\n\r\t)", kAny), U"\"\\/\b\f\n\r\t");
  EXPECT_EQ(whole(R"(\u0041\u00E9\u20ac\uFFFF)", kAny), U"A\u00e9\u20ac\uffff");
  EXPECT_EQ(whole(R"(\ud83d\uDE00\uDBFF\udfff\ud800\udc00)", kAny),
            U"\U0001F600\U0010FFFF\U00010000");
  for (const char* body : {R"(\a)", R"(\U0041)", R"(\u00g)", R"(\x41)", R"(\ )", R"(\0)", R"(\dc)",
                           R"(\udc00)", R"(\ud800a)", R"(\ud800\n)", R"(\ud800A)", R"(\ud800\ud)",
                           R"(\')", "\n", "\x1f", "\"", "\\\n"}) {
    EXPECT_FALSE(decode(body, kAny).alive && decode(body, kAny).idle) << body;
  }
  EXPECT_FALSE(decode(R"(\udc)", kAny).alive);
  EXPECT_FALSE(decode(R"(\ud800\uda)", kAny).alive);
  EXPECT_TRUE(decode("\x7f", kAny).alive);
}

/// Spellings of every character that the minimal style has.
TEST(JsonStringDecoderTest, MinimalEscapes) {
  for (char32_t c = 0; c < 0x100; ++c) {
    const std::string raw = to_utf8(std::u32string(1, c));
    const std::string quoted = to_json_string(raw);
    const std::string shortest = quoted.substr(1, quoted.size() - 2);
    EXPECT_EQ(whole(shortest, kMinimal), std::u32string(1, c)) << shortest;
    const std::string hex = fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    EXPECT_EQ(whole(hex, kAny), std::u32string(1, c));
    EXPECT_EQ(whole(hex, kMinimal).has_value(), hex == shortest) << hex;
    EXPECT_EQ(whole(raw, kMinimal).has_value(), raw == shortest) << shortest;
  }
  EXPECT_EQ(whole(R"(\/)", kMinimal), std::nullopt);
  EXPECT_EQ(whole(R"(\ud83d\ude00)", kMinimal), std::nullopt);
}

TEST(JsonStringDecoderTest, MinimalEscapesOfCharactersThatNothingElseSpells) {
  const CodePoints unspelled({{'/', '/'}, {0xE0, 0xFF}, {0x1F600, 0x1F600}});
  const Escapes escapes = {EscapeStyle::kMinimal, &unspelled};
  EXPECT_EQ(whole(R"(\u00e9é\u002F\ud83d\ude00)", escapes), U"éé/\U0001F600");
  for (const char* body : {R"(\u00d)", R"(\u0061)", R"(\ud83c)", R"(\ud83d\ude1)", R"(\/)"}) {
    EXPECT_FALSE(decode(body, escapes).alive) << body;
  }
}

TEST(JsonStringDecoderTest, EveryCharacter) {
  for (char32_t c = 0x80; c <= CodePoints::kLast; c += c < 0x1000 ? 1 : 61) {
    if (c >= 0xD800 && c <= 0xDFFF) {
      continue;
    }
    EXPECT_EQ(whole(to_utf8(std::u32string(1, c)), kMinimal), std::u32string(1, c));
  }
}

/// Dead and unfinished exactly where the text is no UTF-8, or the beginning of it.
TEST(JsonStringDecoderTest, RandomBytesAgainstUtf8) {
  constexpr std::array<uint8_t, 24> kBytes = {0x61, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                              0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEE,
                                              0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    std::string body;
    for (uint32_t more = 1 + random() % 5; more > 0; --more) {
      body += static_cast<char>(kBytes[random() % kBytes.size()]);
    }
    const Decoded result = decode(body, kAny);
    std::string_view rest = body;
    while (!rest.empty() && scan_utf8(rest).valid) {
      rest.remove_prefix(scan_utf8(rest).bytes);
    }
    // A part is alive when more bytes make it a character.
    const bool begun =
        !rest.empty() && scan_utf8(rest).prefix && scan_utf8(rest).bytes == rest.size();
    EXPECT_EQ(result.alive, rest.empty() || begun) << ::testing::PrintToString(body);
    EXPECT_EQ(result.alive && result.idle, is_utf8(body)) << ::testing::PrintToString(body);
  }
}

TEST(JsonStringDecoderTest, RandomBodiesAgainstParsing) {
  constexpr std::array<std::string_view, 20> kParts = {
      "\\",  "u",      "\\u", "00", "d8", "D83d", "dc00", "DE0", "0",  "a",
      "\\n", "\\ud83", "é",   "\"", "\n", "/",    "b",    "F",   "1f", "\\u000"};
  std::mt19937 random(2);
  int valid = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string body;
    for (uint32_t more = 1 + random() % 6; more > 0; --more) {
      body += kParts[random() % kParts.size()];
    }
    std::optional<std::u32string> expected;
    try {
      expected = to_code_points(parse_json('"' + body + '"', "body").text);
      ++valid;
    } catch (const GrammarError&) {
      expected.reset();
    }
    EXPECT_EQ(whole(body, kAny), expected) << body;
  }
  EXPECT_GT(valid, 5'000);
}

bool holds(const std::vector<CodePoints::Range>& ranges, char32_t c) {
  for (const CodePoints::Range& range : ranges) {
    if (range.first <= c && c <= range.last) {
      return true;
    }
  }
  return false;
}

/// `reach` at every place within a character's spelling holds that character; and when it is not
/// empty, some byte leads on, to a place that reaches less.
TEST(JsonStringDecoderTest, ReachHoldsWhatComes) {
  std::mt19937 random(3);
  for (int i = 0; i < 3'000; ++i) {
    char32_t c = random() % 3 == 0 ? random() % 0x80 : random() % (CodePoints::kLast + 1);
    c = c >= 0xD800 && c <= 0xDFFF ? U'é' : c;
    std::string spelling = to_utf8(std::u32string(1, c));
    if (c < 0x10000 && i % 2 == 0) {
      spelling = fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (i % 2 == 0) {
      spelling = fmt::format("\\u{:04X}\\u{:04x}", 0xD7C0 + (static_cast<uint32_t>(c) >> 10),
                             0xDC00 + (static_cast<uint32_t>(c) & 0x3FF));
    } else if (c < 0x20 || c == '"' || c == '\\') {
      spelling = to_json_string(spelling);
      spelling = spelling.substr(1, spelling.size() - 2);
    }
    JsonStringDecoder decoder;
    std::optional<char32_t> point;
    for (const char byte : spelling) {
      EXPECT_TRUE(holds(decoder.reach(kAny), c)) << spelling;
      ASSERT_TRUE(decoder.take(static_cast<uint8_t>(byte), kAny, point)) << spelling;
    }
    EXPECT_EQ(point, c) << spelling;
  }
}

/// The characters that can be reached, found by walking on; the first of each range is among them.
void expect_exact_reach(const JsonStringDecoder& decoder, const Escapes& style) {
  if (decoder.idle()) {
    return;
  }
  const std::vector<CodePoints::Range> reach = decoder.reach(style);
  bool goes_on = false;
  std::vector<CodePoints::Range> next;
  for (int byte = 0; byte < 256; ++byte) {
    JsonStringDecoder after = decoder;
    std::optional<char32_t> point;
    if (after.take(static_cast<uint8_t>(byte), style, point)) {
      goes_on = true;
      const auto further =
          point ? std::vector<CodePoints::Range>{{*point, *point}} : after.reach(style);
      EXPECT_FALSE(further.empty());
      next.insert(next.end(), further.begin(), further.end());
    }
  }
  EXPECT_TRUE(goes_on);
  EXPECT_EQ(CodePoints(next), CodePoints(reach)) << decoder.key();
}

TEST(JsonStringDecoderTest, ReachIsWhatTheNextBytesReach) {
  std::mt19937 random(4);
  const CodePoints unspelled({{'#', '#'}, {0xE0, 0xFF}, {0x1F600, 0x1F64F}});
  for (const Escapes& style : {kAny, kMinimal, Escapes{EscapeStyle::kMinimal, &unspelled}}) {
    for (int i = 0; i < 400; ++i) {
      JsonStringDecoder decoder;
      std::optional<char32_t> point;
      decoder.take(static_cast<uint8_t>(i % 2 == 0 ? '\\' : 0xC0 + random() % 0x35), style, point);
      for (int steps = 0; steps < 12 && !decoder.idle(); ++steps) {
        expect_exact_reach(decoder, style);
        JsonStringDecoder after;
        bool taken = false;
        for (int tries = 0; tries < 2'000 && !taken; ++tries) {
          after = decoder;
          taken = after.take(static_cast<uint8_t>(random() % 256), style, point);
        }
        ASSERT_TRUE(taken);
        decoder = after;
      }
    }
  }
}

TEST(JsonStringDecoderTest, KeysTellDecodersApart) {
  JsonStringDecoder a;
  JsonStringDecoder b;
  std::optional<char32_t> point;
  a.take(0xE2, kAny, point);
  b.take(0xC2, kAny, point);
  EXPECT_NE(a.key(), b.key());
  EXPECT_NE(a.key(), JsonStringDecoder().key());
}

}  // namespace
}  // namespace specdec
