// Models with recurrent layers on the ops of CUDA, whose kernels run on the CPU
// (core/kernels/cuda/emulation); the golden set is among those of cuda_model_test.cpp and
// cuda_graphs_test.cpp.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/row_view.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/counting_allocator.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/error_message.h"
#include "tests/support/locked_model.h"
#include "tests/support/tiny_recurrent_gemma.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kRecurrentVocab = 40;

/// A cache whose tables lie apart from the host's, as on a GPU.
KvStoreFactory mirrored_states(const StateOptions& states = {}) {
  return [=](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return make_cache(layers, {.dtype = options.dtype,
                               .page_size = 4,
                               .max_length = options.max_length,
                               .states = states,
                               .as_device = true});
  };
}

/// Two recurrent layers and one that attends: the emulation is slow.
std::unique_ptr<TransformerModel> recurrent_on_device(uint64_t seed, const KvStoreFactory& cache,
                                                      int64_t graphs = 32) {
  return std::make_unique<TransformerModel>(
      tiny_recurrent_gemma(kRecurrentVocab, at::kFloat, seed, kEmulated), cache,
      TransformerOptions{.ops = cuda_ops(at::kCPU), .active_layers = 3, .graphs = graphs});
}

const std::vector<Token> kRecurrentText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7, 9, 3, 2, 38};

class CudaRecurrentTest : public testing::Test {
 protected:
  std::unique_ptr<TransformerModel> model_ = recurrent_on_device(1, mirrored_states({.every = 4}));
  std::span<const Token> text_ = kRecurrentText;
};

TEST_F(CudaRecurrentTest, VerifiedTreesAndRowsHaveTheBitsOfDecoding) {
  model_->prefill_get_last_logits(text_.first(5));
  const std::vector<Tensor> alone = decoded(*model_, text_.subspan(5, 5));
  model_->truncate(4);  // a checkpoint; the fifth token is read again, in another piece
  const RowId other = model_->fork(0, 4);
  // Two branches after the first token; the path that was decoded lies last in each.
  TokenBatch tree = batch_of(
      std::vector<Token>{text_[4], text_[5], 1, text_[6], 2, text_[7], 3, text_[8], 11, 12});
  tree.parents = {-1, 0, 1, 1, 2, 3, 5, 5, -1, 0};
  tree.rows = {0, 0, 0, 0, 0, 0, 0, 0, other, other};
  const Tensor logits = model_->forward(tree).logits;
  const std::vector<int64_t> path = {0, 1, 3, 5, 7};
  for (size_t i = 1; i < path.size(); ++i) {
    EXPECT_TRUE(at::equal(logits[path[i]], alone[i - 1])) << i;
  }
  model_->commit(path);
  model_->commit(std::vector<int64_t>{0, 1}, other);
  const std::vector<Token> next = {text_[9], 13};
  const Tensor rows = model_->decode_get_logits(next, std::vector<RowId>{0, other});
  EXPECT_TRUE(at::equal(rows[0], alone[4]));
  model_->truncate(0);
  std::vector<Token> whole(text_.begin(), text_.begin() + 4);
  whole.insert(whole.end(), {11, 12, 13});
  EXPECT_TRUE(at::equal(model_->forward(batch_of(whole)).logits[6], rows[1]));
}

TEST_F(CudaRecurrentTest, LogitsFollowTheCpu) {
  TransformerModel host(tiny_recurrent_gemma(kRecurrentVocab, at::kFloat), paged_kv(),
                        {.active_layers = 3});
  EXPECT_LE(
      max_difference(model_->forward(batch_of(text_)).logits, host.forward(batch_of(text_)).logits),
      1e-4);
}

TEST_F(CudaRecurrentTest, AForwardTakesNoMemory) {
  model_->prefill_get_last_logits(text_.first(5));
  const TokenBatch batch = batch_of(text_.subspan(5, 3));
  for (int round = 0; round < 2; ++round) {  // as it is, and recorded
    model_->forward(batch);
    commit_all(*model_);
  }
  const CountingAllocator counted;
  const ForwardResult result = model_->forward(batch);
  EXPECT_EQ(counted.count(), 0);
  EXPECT_EQ(model_->graph_counts().replays, 1);
}

TEST_F(CudaRecurrentTest, StatesThatLieElsewhereAreNotThoseOfAGraph) {
  const auto plain = recurrent_on_device(1, paged_kv(), 0);
  const auto same = [&](std::span<const Token> tokens) {
    EXPECT_TRUE(at::equal(model_->forward(batch_of(tokens)).logits,
                          plain->forward(batch_of(tokens)).logits));
    commit_all(*model_);
    commit_all(*plain);
  };
  for (size_t i = 0; i < 6; ++i) {
    if (i == 3) {
      same(std::vector<Token>(33, 7));  // more nodes than there were places for
    }
    same(text_.subspan(i, 1));
  }
  EXPECT_EQ(model_->graph_counts().captures, 2);
  EXPECT_EQ(model_->graph_counts().replays, 2);
}

TEST_F(CudaRecurrentTest, ErrorsAreTheHosts) {
  const int64_t bytes = 2 * 4 * 24 * 4;  // layers, width, channels, bytes
  const auto model = recurrent_on_device(
      1, mirrored_states({.every = 4, .most_checkpoints = 1, .max_bytes = 10 * bytes}));
  model->prefill_get_last_logits(text_.first(9));
  EXPECT_THAT(error_message<Error>([&] { model->truncate(7); }), HasSubstr("but to 0"));
  EXPECT_THAT(error_message<Error>([&] { model->forward(batch_of(text_.first(9))); }),
              HasSubstr("holds 10 states"));
  EXPECT_EQ(model->pending(), 0);
  model->truncate(8);
  EXPECT_EQ(model->snapshots(), nullptr);
}

/// Speculation whose target and draft model are recurrent.
class RecurrentBench {
 public:
  RecurrentBench(DrawnBy who, DeviceRule rule, std::unique_ptr<DraftShape> shape)
      : strategy_(target(who), drafter(who), verifier_of(rule), std::move(shape)) {}
  Generation generate(const SamplingParams& sampling) {
    return generate_chains(strategy_, kChainPrompts.front(), sampling, 6);
  }

 private:
  LanguageModel& target(DrawnBy who) {
    if (who == DrawnBy::kHost) {
      return locked_;
    }
    return *target_;
  }
  std::unique_ptr<Drafter> drafter(DrawnBy who) {
    if (who == DrawnBy::kHost) {
      return std::make_unique<DraftModelDrafter>(std::make_unique<LockedModel>(*draft_));
    }
    return std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*draft_, 0));
  }

  std::unique_ptr<TransformerModel> target_ = recurrent_on_device(1, paged_kv());
  std::unique_ptr<TransformerModel> draft_ = recurrent_on_device(2, mirrored_states({.every = 4}));
  LockedModel locked_{*target_};
  SpeculativeDecoding strategy_;
};

TEST(CudaRecurrentSpeculationTest, DrawnChainsAreTheHosts) {
  for (const DeviceRule rule : {DeviceRule::kNone, DeviceRule::kRejection}) {
    const SamplingParams sampling{.temperature = rule == DeviceRule::kNone ? 0.0 : 1.0};
    RecurrentBench device(DrawnBy::kDevice, rule, std::make_unique<FixedDraftLength>(3));
    RecurrentBench host(DrawnBy::kHost, rule, std::make_unique<FixedDraftLength>(3));
    expect_the_hosts_tokens(device.generate(sampling), host.generate(sampling),
                            rule == DeviceRule::kNone ? 12 : 8);
  }
}

TEST(CudaRecurrentSpeculationTest, TreesGiveTheTokensOfDecoding) {
  const auto plain = recurrent_on_device(1, paged_kv());
  std::vector<Token> wanted;
  Tensor logits = plain->prefill_get_last_logits(kChainPrompts.front());
  for (int i = 0; i < 6; ++i) {
    wanted.push_back(static_cast<Token>(logits.argmax().item<int64_t>()));
    logits = plain->decode_get_logits({&wanted.back(), 1})[0];
  }
  RecurrentBench bench(
      DrawnBy::kDevice, DeviceRule::kNone,
      std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {1, 0}})));
  EXPECT_EQ(bench.generate({}).tokens, wanted);
}

}  // namespace
}  // namespace specdec
