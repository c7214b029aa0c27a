#include "core/device_probs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

TEST(DeviceProbsTest, TheHostSeesTheRows) {
  at::manual_seed(4);
  const at::Tensor rows = at::randn({3, 600}, at::kDouble).softmax(-1);
  const std::vector<TokenProbs> probs = device_probs(rows);
  ASSERT_EQ(probs.size(), 3U);
  for (int64_t index = 0; index < 3; ++index) {
    const auto* begin = rows[index].const_data_ptr<double>();
    const TokenProbs wanted(std::vector<double>(begin, begin + 600));
    const TokenProbs& actual = probs[static_cast<size_t>(index)];
    EXPECT_EQ(actual.row(), wanted.row());
    EXPECT_EQ(actual.sum(), wanted.sum());
    EXPECT_EQ(actual.best(), wanted.best());
    CounterRandomness random(5);
    const Token drawn = actual.draw(random);
    random.seek(0, Purpose::kSample);
    EXPECT_EQ(wanted.draw(random), drawn);
    EXPECT_EQ(residual(wanted, actual).sum(), 0.0);
  }
}

TEST(DeviceProbsTest, NeighboursOnADeviceAreAPartOfTheirRows) {
  const at::Tensor rows = at::ones({4, 2}, at::kDouble) / 2.0;
  const std::vector<TokenProbs> probs = device_probs(rows);
  EXPECT_TRUE(is_on_device(probs[1]));
  const at::Tensor part = rows_on_device({probs[1], probs[2], probs[3]});
  EXPECT_EQ(part.const_data_ptr(), rows[1].const_data_ptr());
  EXPECT_EQ(part.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_FALSE(rows_on_device({}).defined());
  EXPECT_FALSE(rows_on_device({probs[0], probs[2]}).defined()) << "with a row between";
  EXPECT_FALSE(rows_on_device({probs[1], probs[0]}).defined());
  EXPECT_FALSE(rows_on_device({probs[0], device_probs(rows)[1]}).defined()) << "of another draft";
  for (const TokenProbs& here : {TokenProbs(std::vector<double>{0.5, 0.5}),
                                 TokenProbs::one_hot(1, 2), probs[0].without(1)}) {
    EXPECT_FALSE(is_on_device(here));
    EXPECT_FALSE(rows_on_device({probs[0], here}).defined());
    EXPECT_FALSE(rows_on_device({here, probs[0]}).defined());
  }
  const TokenProbs half = device_probs(rows / 4.0).front().normalised();
  EXPECT_EQ(half[0], 0.5);
  EXPECT_FALSE(is_on_device(half)) << "a multiple of what lies there";
}

TEST(DeviceProbsTest, RowsAreContiguousFloat64) {
  EXPECT_THROW(device_probs(at::ones({2, 2})), InternalError);
  EXPECT_THROW(device_probs(at::ones({2}, at::kDouble)), InternalError);
  EXPECT_THROW(device_probs(at::ones({2, 3}, at::kDouble).t()), InternalError);
}

}  // namespace
}  // namespace specdec
