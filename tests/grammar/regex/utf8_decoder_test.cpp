#include "grammar/regex/utf8_decoder.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

namespace specdec {
namespace {

TEST(Utf8DecoderTest, EveryCharacterAsItIsWritten) {
  for (char32_t c = 0; c <= CodePoints::kLast; c += c < 0x900 ? 1 : 37) {
    if (c >= 0xD800 && c <= 0xDFFF) {
      continue;
    }
    Utf8Decoder decoder;
    std::optional<char32_t> point;
    for (const char byte : to_utf8(std::u32string(1, c))) {
      EXPECT_FALSE(point);
      if (!decoder.idle()) {
        const auto [first, last] = decoder.reach();
        EXPECT_TRUE(first <= c && c <= last);
      }
      ASSERT_TRUE(decoder.take(static_cast<uint8_t>(byte), point)) << uint32_t{c};
    }
    EXPECT_EQ(point, c);
    EXPECT_TRUE(decoder.idle());
  }
}

TEST(Utf8DecoderTest, NothingElse) {
  for (const std::string text : {"\x80", "\xC1", "\xF5", "\xC3(", "\xE0\x9F", "\xED\xA0",
                                 "\xF0\x8F", "\xF4\x90", "\xE4\xB8 ", "\xE4\xC0"}) {
    Utf8Decoder decoder;
    std::optional<char32_t> point;
    bool alive = true;
    for (const char byte : text) {
      EXPECT_TRUE(alive) << text;
      alive = decoder.take(static_cast<uint8_t>(byte), point);
    }
    EXPECT_FALSE(alive) << text;
  }
}

/// The bytes that two decoders take, as long as a character lasts.
void expect_alike(const Utf8Decoder& a, const Utf8Decoder& b) {
  for (int byte = 0; byte < 256; ++byte) {
    std::optional<char32_t> point;
    Utf8Decoder left = a;
    Utf8Decoder right = b;
    const bool taken = left.take(static_cast<uint8_t>(byte), point);
    EXPECT_EQ(right.take(static_cast<uint8_t>(byte), point), taken) << byte;
    if (taken && !left.idle()) {
      EXPECT_EQ(left.shape(), right.shape());
    }
  }
}

TEST(Utf8DecoderTest, EightShapes) {
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> shapes;
  const auto note = [&](const Utf8Decoder& decoder) {
    const Utf8Decoder shape = decoder.shape();
    expect_alike(decoder, shape);
    shapes.insert({shape.value, shape.more, shape.size});
  };
  note({});
  for (int lead = 0xC2; lead <= 0xF4; ++lead) {
    for (int second = 0x80; second <= 0xBF; ++second) {
      Utf8Decoder decoder;
      std::optional<char32_t> point;
      ASSERT_TRUE(decoder.take(static_cast<uint8_t>(lead), point));
      note(decoder);
      if (decoder.take(static_cast<uint8_t>(second), point)) {
        note(decoder);
      }
    }
  }
  EXPECT_EQ(shapes.size(), 8U);
}

}  // namespace
}  // namespace specdec
