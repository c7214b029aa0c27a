// Models on the CUDA ops with caches that round keys by channel, in groups of tokens.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decoders/autoregressive.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"

namespace specdec {
namespace {

/// Recent tokens beside the format; of a `window` layers with full attention see 2 + 70 tokens.
KvStoreFactory grouped_kv(KvFormat format, bool window = false) {
  return [=](std::vector<LayerKv> layers, const KvStoreOptions& options) {
    for (LayerKv& layer : layers) {
      if (window && layer.window == 0) {
        layer.window = 70;
        layer.sink = 2;
      }
    }
    return make_cache(layers, {.dtype = options.dtype,
                               .format = format,
                               .device = options.device,
                               .page_size = kKeyGroup,
                               .max_length = options.max_length,
                               .exact_recent = 33});
  };
}

std::vector<Token> grouped_text(int64_t count) {
  std::vector<Token> text;
  for (int64_t i = 0; i < count; ++i) {
    text.push_back(static_cast<Token>((i * i * 7 + 3 * i) % 40));
  }
  return text;
}

struct CudaGroupsCase {
  std::string name;
  KvFormat format;
  bool window;
};

void PrintTo(const CudaGroupsCase& one, std::ostream* out) { *out << one.name; }

class CudaKeyGroupsModelTest : public testing::TestWithParam<CudaGroupsCase> {
 protected:
  static constexpr int64_t kPrompt = 90;
  static constexpr int64_t kTokens = 140;

  std::span<const Token> text(int64_t begin, int64_t end) const {
    return std::span(text_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }

  std::vector<Token> text_ = grouped_text(kTokens);
  KvStoreFactory kv_ = grouped_kv(GetParam().format, GetParam().window);
  TransformerModel model_{small_gemma(), kv_, emulated()};
};

TEST_P(CudaKeyGroupsModelTest, LogitsFollowTheCpu) {
  TransformerModel host(small_gemma(1, Placement()), kv_);
  TransformerModel exact(small_gemma(1, Placement()), paged_kv());
  int64_t begin = 0;
  for (const int64_t end : {70, 100, 101, 135}) {
    std::vector<Tensor> logits;
    for (TransformerModel* model : {&model_, &host, &exact}) {
      logits.push_back(model->forward(batch_of(text(begin, end))).logits.clone());
      commit_all(*model);
    }
    begin = end;
    EXPECT_LE((logits[0] - logits[1]).abs().max().item<double>(), 3e-2) << end;
    EXPECT_GT((logits[0] - logits[2]).abs().mean().item<double>(),
              3 * (logits[0] - logits[1]).abs().mean().item<double>())
        << "nothing is rounded";
  }
}

/// Nodes beside a path lie where its tokens will: a commit moves them, and rounds their groups.
TEST_P(CudaKeyGroupsModelTest, AVerifiedTokenHasTheBitsOfADecodedOne) {
  TransformerModel alone(small_gemma(), kv_, emulated());
  for (TransformerModel* model : {&model_, &alone}) {
    model->prefill_get_last_logits(text(0, kPrompt));
  }
  const std::vector<Tensor> single = decoded(alone, text(kPrompt, kTokens));
  const std::vector<int64_t> path = {1, 3, 4, 6};
  for (int64_t first = kPrompt; first + 4 <= kTokens; first += 4) {
    const auto next = text(first, first + 4);
    TokenBatch tree = batch_of(std::vector<Token>{5, next[0], 6, next[1], next[2], 7, next[3]});
    tree.parents = {-1, -1, 1, 1, 3, 3, 4};
    const Tensor logits = model_.forward(tree).logits;
    for (size_t i = 0; i < path.size(); ++i) {
      EXPECT_TRUE(at::equal(logits[path[i]], single[static_cast<size_t>(first - kPrompt) + i]))
          << first << " + " << i;
    }
    model_.commit(path);
  }
}

TEST_P(CudaKeyGroupsModelTest, PrefillsForksAndCutRowsHaveDecodingsBits) {
  TransformerModel alone(small_gemma(), kv_, emulated());
  alone.prefill_get_last_logits(text(0, kPrompt));
  const std::vector<Tensor> single = decoded(alone, text(kPrompt, kTokens));
  const Tensor wanted = at::stack(single);
  model_.prefill_get_last_logits(text(0, kPrompt));
  const RowId fork = model_.fork(0, kPrompt - 3);
  EXPECT_TRUE(at::equal(model_.forward(batch_of(text(kPrompt, kTokens))).logits, wanted));
  commit_all(model_);
  // Other tokens, which end a group too, and are forgotten.
  model_.truncate(kPrompt + 2);
  (void)model_.forward(batch_of(grouped_text(40)));
  commit_all(model_);
  model_.truncate(kPrompt + 1);
  EXPECT_TRUE(
      at::equal(model_.forward(batch_of(text(kPrompt + 1, kTokens))).logits, wanted.slice(0, 1)));
  TokenBatch batch = batch_of(text(kPrompt - 3, kTokens));
  batch.rows.assign(static_cast<size_t>(kTokens - kPrompt + 3), fork);
  EXPECT_TRUE(at::equal(model_.forward(batch).logits.slice(0, 3), wanted));
}

INSTANTIATE_TEST_SUITE_P(All, CudaKeyGroupsModelTest,
                         testing::Values(CudaGroupsCase{"kivi2", KvFormat::kKivi2, false},
                                         CudaGroupsCase{"kivi4", KvFormat::kKivi4, false},
                                         CudaGroupsCase{"kivi2_window", KvFormat::kKivi2, true}),
                         [](const auto& info) { return info.param.name; });

/// Changes nothing, but chains are drawn by the host.
class NoGroupsHook final : public LayerHook {
 public:
  std::string fingerprint() const override { return ""; }
  void run(LayerPass& pass) override { pass.evaluate(); }
};

/// `self` with such a cache of its own, which follows the target's: its chains are drawn on the
/// device or not, and a target with such a cache decodes what plain decoding does.
TEST(CudaKeyGroupsCopyTest, DrawnChainsHaveTheHostsTokens) {
  const auto generate = [&](bool on_device, KvFormat of_target) {
    TransformerOptions options = emulated();
    options.max_length = 160;
    TransformerModel target(small_gemma(),
                            of_target == KvFormat::kNative ? paged_kv() : grouped_kv(of_target),
                            options);
    if (!on_device) {
      options.hooks = {std::make_shared<NoGroupsHook>()};
    }
    auto copy =
        std::make_unique<TransformerModel>(small_gemma(), grouped_kv(KvFormat::kKivi2), options);
    SpeculativeDecoding strategy(
        target, std::make_unique<SelfDrafter>(target, SelfDrafterOptions{}, std::move(copy)),
        verifier_of(DeviceRule::kRejection), std::make_unique<FixedDraftLength>(3));
    return generate_chains(strategy, grouped_text(80), {}, 30);
  };
  for (const KvFormat of_target : {KvFormat::kNative, KvFormat::kKivi4}) {
    const Generation device = generate(true, of_target);
    const Generation host = generate(false, of_target);
    EXPECT_EQ(device.tokens, host.tokens);
    ASSERT_EQ(device.steps.size(), host.steps.size());
    int64_t accepted = 0;
    for (size_t i = 0; i < device.steps.size(); ++i) {
      accepted += device.steps[i].accepted;
      EXPECT_EQ(device.steps[i].rejected, host.steps[i].rejected);
    }
    EXPECT_GT(accepted, 0);
    TransformerOptions options = emulated();
    options.max_length = 160;
    TransformerModel plain(small_gemma(),
                           of_target == KvFormat::kNative ? paged_kv() : grouped_kv(of_target),
                           options);
    AutoregressiveDecoding decoding(plain);
    EXPECT_EQ(generate_chains(decoding, grouped_text(80), {}, 30).tokens, device.tokens);
  }
}

}  // namespace
}  // namespace specdec
