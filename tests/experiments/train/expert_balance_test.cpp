#include "experiments/train/expert_balance.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace specdec {
namespace {

/// A loss of one layer, [1, T, count].
double loss_of(const at::Tensor& probs, int64_t chosen) {
  return expert_balance_loss(std::vector<at::Tensor>{probs.unsqueeze(0)}, chosen).item<double>();
}

TEST(ExpertBalanceTest, EvenRoutesAreOneAndASingleOneIsTheCount) {
  EXPECT_DOUBLE_EQ(loss_of(at::eye(4, at::kDouble), 1), 1.0);
  EXPECT_DOUBLE_EQ(loss_of(at::eye(4, at::kDouble)[2].expand({5, 4}), 1), 4.0);
}

TEST(ExpertBalanceTest, SharesOfChoicesTimesMeanProbabilities) {
  const auto probs = at::tensor({0.5, 0.3, 0.2, 0.1, 0.6, 0.3}, at::kDouble).view({2, 3});
  // Chosen: 0 and 1, then 1 and 2: shares 1/4, 1/2, 1/4; means 0.3, 0.45, 0.25.
  EXPECT_NEAR(loss_of(probs, 2), 3.0 * (0.25 * 0.3 + 0.5 * 0.45 + 0.25 * 0.25), 1e-12);
}

TEST(ExpertBalanceTest, ItsGradientLowersWhatIsChosenOften) {
  const auto probs = at::tensor({0.7, 0.3, 0.6, 0.4, 0.2, 0.8}, at::kDouble)
                         .view({1, 3, 2})
                         .set_requires_grad(true);
  expert_balance_loss(std::vector<at::Tensor>{probs, probs}, 1).backward();
  const auto gradient = probs.grad().sum(at::IntArrayRef{0, 1});
  EXPECT_GT(gradient[0].item<double>(), gradient[1].item<double>());
}

}  // namespace
}  // namespace specdec
