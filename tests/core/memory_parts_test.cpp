#include "core/memory_parts.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

TEST(SharedBytesTest, CountsAPartOnceWhileItHasAHolder) {
  const int one = 0;
  const int other = 0;
  const MemoryParts first = {{&one, 1, 10}, {&one, 2, 20}};
  const MemoryParts second = {{&one, 2, 20}, {&other, 2, 5}};
  EXPECT_EQ(bytes_of(second), 25);
  SharedBytes shared;
  shared.add(first);
  shared.add(second);
  EXPECT_EQ(shared.bytes(), 35);
  shared.remove(first);
  EXPECT_EQ(shared.bytes(), 25);
  EXPECT_THROW(shared.remove(first), InternalError);
  shared.remove(second);
  EXPECT_EQ(shared.bytes(), 0);
}

}  // namespace
}  // namespace specdec
