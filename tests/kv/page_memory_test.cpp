#include "kv/page_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

int64_t resident_bytes() {
  int64_t size = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(ReservedMemoryTest, TakesWhatIsWrittenOnly) {
  const int64_t before = resident_bytes();
  ReservedMemory memory(int64_t{1} << 36);
  memory.use(int64_t{1} << 24);
  memory.use(int64_t{1} << 26);
  auto* data = static_cast<char*>(memory.data());
  EXPECT_EQ(data[(1 << 26) - 1], 0);
  data[0] = 1;
  EXPECT_LT(resident_bytes() - before, int64_t{1} << 23);
  EXPECT_THROW(memory.use((int64_t{1} << 36) + 1), InternalError);
}

TEST(ReservedMemoryTest, WhatIsTouchedIsResidentAndUnchanged) {
  ReservedMemory memory(int64_t{1} << 30);
  memory.use(int64_t{1} << 26);
  auto* data = static_cast<char*>(memory.data());
  data[4096] = 7;
  const int64_t before = resident_bytes();
  memory.touch(int64_t{1} << 25);
  EXPECT_GT(resident_bytes() - before, int64_t{1} << 24);
  EXPECT_EQ(data[4096], 7);
  EXPECT_EQ(data[1 << 24], 0);
  EXPECT_THROW(memory.touch((int64_t{1} << 30) + 1), InternalError);
}

TEST(ReservedMemoryTest, MoreThanAnyAddressSpaceIsAnError) {
  EXPECT_THROW(ReservedMemory(int64_t{1} << 62), Error);
}

TEST(PageMemoryTest, GrowsInPlaceAndOutlivesItsOwner) {
  Tensor kept;
  {
    PageMemory memory({2, 3}, at::kFloat, 1000);
    memory.reserve(2);
    ASSERT_EQ(memory.pages().sizes(), (std::vector<int64_t>{2, 2, 3}));
    memory.pages().fill_(7);
    const void* data = memory.pages().data_ptr();
    memory.reserve(1000);
    EXPECT_EQ(memory.pages().data_ptr(), data);
    EXPECT_EQ(memory.pages().size(0), 1000);
    EXPECT_TRUE(memory.pages().narrow(0, 0, 2).eq(7).all().item<bool>());
    memory.reserve(3);
    EXPECT_EQ(memory.pages().size(0), 1000) << "never shrinks";
    EXPECT_THROW(memory.reserve(1001), InternalError);
    kept = memory.pages();
  }
  EXPECT_EQ(kept[1][1][2].item<float>(), 7);
}

TEST(PageMemoryTest, DevicesGetAllPagesAtOnce) {
  EXPECT_TRUE(allocates_at_once(at::kMeta));
  EXPECT_FALSE(allocates_at_once(at::kCPU));
  PageMemory memory({4}, at::TensorOptions().dtype(at::kFloat).device(at::kMeta), 5);
  EXPECT_EQ(memory.pages().size(0), 5);
  memory.reserve(3);
  EXPECT_EQ(memory.pages().size(0), 5);
}

}  // namespace
}  // namespace specdec
