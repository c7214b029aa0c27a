// Models with experts whose matrices lie in fragments, on the ops of CUDA, whose kernels run on the
// CPU (core/kernels/cuda/emulation).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/max_difference.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

class CudaExpertModelTest : public testing::Test {
 protected:
  static constexpr int64_t kVocab = 40;

  std::shared_ptr<const TransformerWeights> packed(std::optional<Placement> place = {}) const {
    return pack(tensors_, {.dtype = at::kBFloat16, .place = place});
  }

  TransformerTensors tensors_ = unpack(*tiny_gemma4("moe", kVocab, at::kFloat));  // 2 of 4 experts
  std::shared_ptr<const TransformerWeights> weights_ = packed(kEmulated);
  std::vector<Token> tokens_ = {2, 7, 11, 5, 3, 30, 21, 17, 9, 4, 13, 8, 39};
};

TEST_F(CudaExpertModelTest, FollowsTheCpuWithMatricesInFragments) {
  for (const LayerWeights& layer : weights_->layers) {
    for (const auto* stack : {&layer.experts.gate_up, &layer.experts.down}) {
      ASSERT_EQ(stack->size(), 4U);
      for (const Linear& matrix : *stack) {
        EXPECT_TRUE(matrix.parts().front().in_fragments);
      }
    }
  }
  TransformerModel device(weights_, paged_kv(), emulated());
  TransformerModel host(packed(), paged_kv());
  const TokenBatch batch = batch_of(tokens_);
  EXPECT_LE(max_difference(device.forward(batch).logits, host.forward(batch).logits), 1e-4);
  const TransformerTensors back = unpack(*weights_);
  EXPECT_TRUE(at::equal(back.layers[1].experts.down[3],
                        tensors_.layers[1].experts.down[3].to(at::kBFloat16)));
}

/// Decoded tokens choose each expert alone, verified ones and those of graphs share them.
TEST_F(CudaExpertModelTest, VerifiedTokensAndGraphsHaveTheBitsOfDecoding) {
  const std::span<const Token> all(tokens_);
  TransformerOptions options = emulated();
  options.graphs = 0;
  TransformerModel plain(weights_, paged_kv(), options);
  options.graphs = 4;
  options.ops = cuda_ops(at::kCPU);
  TransformerModel graphed(weights_, paged_kv(), options);
  std::vector<std::vector<Tensor>> logits;
  for (TransformerModel* model : {&plain, &graphed}) {
    model->prefill_get_last_logits(all.first(3));
    logits.emplace_back();
    for (const Token& token : all.subspan(3)) {  // copies, so that graphs have their memory
      logits.back().push_back(model->decode_get_logits({&token, 1})[0].clone());
    }
    model->truncate(3);
    const Tensor verified = model->forward(batch_of(all.subspan(3))).logits;
    for (size_t i = 0; i < logits[0].size(); ++i) {
      EXPECT_TRUE(at::equal(logits.back()[i], logits[0][i])) << i;
      EXPECT_TRUE(at::equal(verified[static_cast<int64_t>(i)], logits[0][i])) << i;
    }
  }
  EXPECT_EQ(graphed.graph_counts().captures, 1);
  EXPECT_GE(graphed.graph_counts().replays, 7);
}

}  // namespace
}  // namespace specdec
