#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/randomness.h"
#include "core/token_probs.h"

namespace specdec {
namespace {

/// Tokens of rows of probabilities, row r at position 40 + r, as `source` draws them with a choice.
std::vector<Token> cuda_drawn(const Tensor& probs, const CounterRandomness& source, Purpose purpose,
                              uint32_t choice) {
  const auto count = static_cast<size_t>(probs.size(0));
  const auto source_key = *source.device_key();
  const std::vector<uint32_t> key(source_key.begin(), source_key.end());
  std::vector<int64_t> positions(count);
  std::vector<Token> tokens(count, -7);
  for (size_t row = 0; row < count; ++row) {
    positions[row] = 40 + static_cast<int64_t>(row);
  }
  const cuda::DrawRowsTask task{.probs = probs.const_data_ptr<double>(),
                                .key = key.data(),
                                .positions = positions.data(),
                                .tokens = tokens.data(),
                                .purpose = static_cast<uint32_t>(purpose),
                                .choice = choice,
                                .count = static_cast<int32_t>(count),
                                .vocab = static_cast<int32_t>(probs.size(1))};
  EXPECT_EQ(specdec_cuda_draw_rows(&task, nullptr), 0);
  return tokens;
}

TEST(CudaDrawRowsTest, TokensAreThoseOfTheHostsRandomness) {
  at::manual_seed(12);
  for (const int64_t vocab : {1, 40, 256, 1300}) {
    for (const Purpose purpose : {Purpose::kSample, Purpose::kDraft}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(vocab));
      Tensor probs = (at::randn({30, vocab}, at::kDouble) * 3).softmax(-1);
      probs = at::where(probs < 1.0 / static_cast<double>(4 * vocab), 0.0, probs);
      CounterRandomness random(99, 3);
      const uint32_t choice = purpose == Purpose::kDraft ? 3 : 0;
      const std::vector<Token> drawn = cuda_drawn(probs, random, purpose, choice);
      for (int64_t row = 0; row < 30; ++row) {
        const auto* begin = probs[row].const_data_ptr<double>();
        const TokenProbs wanted(std::vector<double>(begin, begin + vocab));
        random.seek(40 + row, purpose);
        for (uint32_t before = 0; before < choice; ++before) {
          random.bernoulli(0.5);
        }
        ASSERT_EQ(drawn[static_cast<size_t>(row)], wanted.draw(random)) << row << " of " << vocab;
      }
    }
  }
}

TEST(CudaDrawRowsTest, NoRowIsNoWork) {
  cuda::DrawRowsTask task{};
  EXPECT_EQ(specdec_cuda_draw_rows(&task, nullptr), 0);
  task.count = 1;
  EXPECT_EQ(specdec_cuda_draw_rows(&task, nullptr), cuda::kInvalidValue) << "without a vocabulary";
}

}  // namespace
}  // namespace specdec
