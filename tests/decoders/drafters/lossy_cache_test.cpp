// Drafts of the target's own weights over a cache in a lossy format, over tiny random Gemmas: they
// differ from what the target would say, and the output does not.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using LossyWeights = std::shared_ptr<const TransformerWeights>;

std::unique_ptr<SpeculativeDecoding> lossy_decoding(TransformerModel& target,
                                                    const LossyWeights& weights, KvFormat format,
                                                    std::unique_ptr<Verifier> verifier,
                                                    std::unique_ptr<DraftShape> shape) {
  auto draft = std::make_unique<TransformerModel>(weights, paged_kv(4, format));
  return std::make_unique<SpeculativeDecoding>(
      target, std::make_unique<DraftModelDrafter>(std::move(draft)), std::move(verifier),
      std::move(shape));
}

std::vector<std::unique_ptr<DraftShape>> lossy_shapes() {
  std::vector<std::unique_ptr<DraftShape>> all;
  all.push_back(std::make_unique<FixedDraftLength>(3));
  all.push_back(std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {0, 0, 0}})));
  return all;
}

class LossyCacheTest : public testing::TestWithParam<KvFormat> {
 protected:
  LossyCacheTest() { at::set_num_threads(1); }
  ~LossyCacheTest() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(LossyCacheTest, TheOutputsDistributionIsTheTargets) {
  const LossyWeights weights = tiny_gemma(3, at::kFloat);
  TransformerModel target(weights, paged_kv());
  TransformerModel oracle(weights, paged_kv());
  TransformerModel lossy(weights, paged_kv(4, GetParam()));
  const LogitTable table = [&](TokenSpan history) {
    const Tensor logits = oracle.prefill_get_last_logits(history);
    const float* data = logits.const_data_ptr<float>();
    return std::vector<double>(data, data + logits.numel());
  };
  const Task task{
      .prompt = {1, 2}, .sampling = {.temperature = 0.8}, .stop = {.max_new_tokens = 3}};
  EXPECT_FALSE(at::equal(lossy.prefill_get_last_logits(task.prompt),
                         oracle.prefill_get_last_logits(task.prompt)))
      << "the draft's distribution is another one";
  const SequenceDistribution expected = reference_distribution(table, task);
  for (auto& shape : lossy_shapes()) {
    const auto decoding = lossy_decoding(target, weights, GetParam(),
                                         std::make_unique<RejectionVerifier>(), std::move(shape));
    EXPECT_LE(max_difference(exact_distribution(*decoding, task), expected), kSameDistribution);
  }
}

/// Drafted tokens that were accepted in a few greedy generations, whose tokens are checked.
int64_t accepted_tokens(KvFormat format) {
  const LossyWeights weights = tiny_gemma(97, at::kFloat);
  int64_t accepted = 0;
  for (Token first = 0; first < 6; ++first) {
    const Task task{.prompt = {first, 1, 4, 50}, .stop = {.max_new_tokens = 40}};
    CounterRandomness random(1);
    TransformerModel plain(weights, paged_kv());
    const auto tokens = AutoregressiveDecoding(plain).generate(task.request(random)).tokens;
    for (auto& shape : lossy_shapes()) {
      TransformerModel target(weights, paged_kv());
      const auto decoding = lossy_decoding(
          target, weights, format, std::make_unique<ExactMatchVerifier>(), std::move(shape));
      const Generation generation = decoding->generate(task.request(random));
      EXPECT_EQ(generation.tokens, tokens) << kv_format_name(format);
      for (const StepStatistics& step : generation.steps) {
        accepted += step.accepted;
      }
    }
  }
  return accepted;
}

TEST_P(LossyCacheTest, GreedyTokensAreThoseOfPlainDecoding) {
  const int64_t accepted = accepted_tokens(GetParam());
  EXPECT_GT(accepted, 100) << "the same weights draft well";
  if (GetParam() == KvFormat::kQ4 || GetParam() == KvFormat::kFp8E4m3) {
    EXPECT_LT(accepted, accepted_tokens(KvFormat::kNative)) << "some of what they draft is wrong";
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LossyCacheTest,
                         testing::Values(KvFormat::kBFloat16, KvFormat::kFloat16,
                                         KvFormat::kFp8E4m3, KvFormat::kQ8, KvFormat::kQ4,
                                         KvFormat::kQ3, KvFormat::kHierarchical),
                         [](const auto& info) { return kv_format_name(info.param); });

}  // namespace
}  // namespace specdec
