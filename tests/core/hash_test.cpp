#include "core/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace specdec {
namespace {

uint64_t hash(const std::string& text) { return fnv1a(kHashStart, text.data(), text.size()); }

TEST(HashTest, Fnv1aHasItsPublishedValues) {
  EXPECT_EQ(hash(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(hash("foobar"), 0x85944171f73967e8U);
}

TEST(HashTest, GoesOnWhereAPartEnded) {
  const std::string text = "a text of some length";
  EXPECT_EQ(fnv1a(fnv1a(kHashStart, text.data(), 9), text.data() + 9, text.size() - 9), hash(text));
  EXPECT_EQ(hash_bytes(hash_bytes(kHashStart, text.data(), 16), text.data() + 16, 5),
            hash_bytes(kHashStart, text.data(), text.size()));
}

TEST(HashTest, EightBytesAtATimeSeesEachOfThem) {
  const std::string text = "a text of some length";
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    EXPECT_NE(hash_bytes(kHashStart, other.data(), other.size()),
              hash_bytes(kHashStart, text.data(), text.size()));
  }
}

}  // namespace
}  // namespace specdec
