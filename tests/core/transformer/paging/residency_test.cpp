#include "core/transformer/paging/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ResidencyTest, KeepsAllLayersThatFit) {
  const std::vector<int64_t> layers(4, 100);
  const Residency residency = plan_residency(layers, 50, 450);
  EXPECT_THAT(residency.in_memory, ElementsAre(true, true, true, true));
  EXPECT_EQ(residency.memory_bytes, 450);
}

TEST(ResidencyTest, SpreadsLayersOnDiskAmongTheOthers) {
  const std::vector<int64_t> layers(8, 100);
  const Residency residency = plan_residency(layers, 50, 650);  // two buffers and four layers
  EXPECT_THAT(residency.in_memory, ElementsAre(true, false, true, false, true, false, true, false));
  EXPECT_EQ(residency.memory_bytes, 650);
}

TEST(ResidencyTest, MoreMemoryNeverReadsMoreLayers) {
  const std::vector<int64_t> layers = {100, 300, 100, 100, 300, 200, 100};
  int64_t before = std::ssize(layers);
  for (int64_t limit = 650; limit <= 1250; ++limit) {
    const Residency residency = plan_residency(layers, 50, limit);
    const auto on_disk = std::count(residency.in_memory.begin(), residency.in_memory.end(), false);
    EXPECT_LE(on_disk, before) << limit;
    EXPECT_LE(residency.memory_bytes, limit);
    before = on_disk;
  }
  EXPECT_EQ(before, 0);
}

TEST(ResidencyTest, SaysHowMuchIsNeeded) {
  const std::vector<int64_t> layers(6, 100'000'000);
  EXPECT_THAT([&] { plan_residency(layers, 900'000'000, 1'000'000'000); },
              ThrowsMessage<ConfigError>(testing::AllOf(HasSubstr("limit of 1000.0 MB"),
                                                        HasSubstr("take 900.0 MB"),
                                                        HasSubstr("1100.0 MB are needed"))));
}

}  // namespace
}  // namespace specdec
