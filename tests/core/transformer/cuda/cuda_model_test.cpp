// Whole models on the ops of CUDA, whose kernels run on the CPU (core/kernels/cuda/emulation): the
// golden sets, stored formats, and the bits of verified tokens.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/families/model.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/weight_fragments.h"
#include "core/sampling.h"
#include "core/transformer/adapters/lora_adapter.h"
#include "core/transformer/encoder.h"
#include "core/transformer/heads/block_head.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/counting_allocator.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/slack_pair.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

class CudaGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  Golden golden_{GetParam()};
  TransformerModel model_{load_rows(golden_.folder(), at::kFloat), paged_kv(), emulated()};

  static double tolerance() { return GetParam() == "gemma3n-a" ? 5e-4 : 1e-4; }
};

// The emulation takes a thousand times longer than a GPU: some of each set's tokens are enough to
// run every kernel of its family, alone and together, within windows and beyond.
TEST_P(CudaGoldenTest, ChunksMatch) {
  const auto tokens = golden_.tokens("tokens");
  const at::Tensor wanted = golden_.tensor("logits");
  size_t begin = 0;
  for (const size_t chunk : {size_t{9}, size_t{1}, size_t{6}}) {
    const size_t size = std::min(chunk, tokens.size() - begin);
    const Tensor logits = model_.forward(batch_of(std::span(tokens).subspan(begin, size))).logits;
    commit_all(model_);
    const Tensor rows = wanted.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(size));
    ASSERT_LE(max_difference(logits, rows), tolerance()) << chunk << " at " << begin;
    begin += size;
  }
}

TEST_P(CudaGoldenTest, GreedyIsExact) {
  const auto wanted = golden_.tokens("greedy");
  Tensor logits = model_.prefill_get_last_logits(golden_.tokens("prompt"));
  for (size_t i = 0; i < 3; ++i) {
    const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
    ASSERT_EQ(token, wanted[i]) << i;
    logits = model_.decode_get_logits({&token, 1})[0];
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaGoldenTest, testing::ValuesIn(cuda_golden_names()),
                         ParameterName());

class CudaStoredTest : public testing::TestWithParam<std::string> {};

TEST_P(CudaStoredTest, StoredBlocksHaveTheLogitsOfReferenceAndCpu) {
  const auto path = golden_gguf(GetParam());
  const Golden golden(path.parent_path() / (GetParam() + ".golden.safetensors"), Golden::File{});
  const auto all = golden.tokens("tokens");
  const auto tokens = std::span(all).first(8);
  const TokenBatch batch = batch_of(tokens);
  TransformerModel device(load_rows(path), paged_kv(), emulated());
  TransformerModel host(load_model(path), paged_kv());
  const Tensor logits = device.forward(batch).logits;
  const double tolerance = GetParam() == "gemma3n-q8_0" ? 5e-4 : 1e-4;
  EXPECT_LE(max_difference(logits, host.forward(batch).logits), tolerance);
  EXPECT_LE(max_difference(logits, golden.tensor("logits").narrow(0, 0, 8)), tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, CudaStoredTest,
                         testing::ValuesIn(found_golden_gguf({"gemma2-q4_k", "gemma3-mixed",
                                                              "gemma3n-q8_0", "gemma4-moe-q8_0",
                                                              "llama-f16"})),
                         ParameterName());

/// A model whose matrices have one format, or several: of a file.
class CudaFormatTest : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const TransformerWeights> load(const Placement& place) const {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kChar}) {
      if (GetParam() == format_name(weight_format(dtype))) {
        return load_model(golden_.folder(), {.dtype = dtype, .place = place});
      }
    }
    return load_model(golden_gguf(GetParam()), {.dtype = {}, .place = place});
  }

  void SetUp() override {
    for (Token& token : tokens_) {
      token %= static_cast<Token>(weights_->config.vocab_size);
    }
  }

  Golden golden_{"gemma3-a"};
  std::vector<Token> tokens_ = golden_.tokens("tokens");
  std::shared_ptr<const TransformerWeights> weights_ = load(kEmulated);
  TransformerModel model_{weights_, paged_kv(), emulated()};
};

TEST_P(CudaFormatTest, AVerifiedTokenHasTheBitsOfADecodedOne) {
  const std::span<const Token> all(tokens_);
  model_.prefill_get_last_logits(all.first(5));
  const std::vector<Tensor> alone = decoded(model_, all.subspan(5, 4));
  model_.truncate(5);
  // Two branches after the first token: the path that was decoded lies last in each. With the
  // second there are more nodes than a tile of tensor cores has.
  TokenBatch tree =
      batch_of(std::vector<Token>{tokens_[5], 1, tokens_[6], 2, tokens_[7], 3, 4, 5, tokens_[8]});
  tree.parents = {-1, 0, 0, 1, 2, 3, 5, 5, 4};
  const Tensor logits = model_.forward(tree).logits;
  const std::vector<int64_t> path = {0, 2, 4, 8};
  for (size_t i = 0; i < path.size(); ++i) {
    EXPECT_TRUE(at::equal(logits[path[i]], alone[i])) << i;
  }
  model_.commit(path);
  const Tensor next = model_.forward(batch_of(all.subspan(9, 2))).logits;
  model_.truncate(9);
  EXPECT_TRUE(at::equal(next[1], decoded(model_, all.subspan(9, 2))[1]));
}

TEST_P(CudaFormatTest, RowsHaveTheBitsOfEachAlone) {
  const std::span<const Token> all(tokens_);
  model_.prefill_get_last_logits(all.first(6));
  const std::vector<Tensor> alone = decoded(model_, all.subspan(6, 1));
  model_.truncate(6);
  const std::vector<RowId> rows = {model_.fork(0, 6), 0, model_.fork(0, 5)};
  const std::vector<Token> next = {3, tokens_[6], 4};
  EXPECT_TRUE(at::equal(model_.decode_get_logits(next, rows)[1], alone[0]));
}

TEST_P(CudaFormatTest, LogitsFollowTheCpu) {
  TransformerModel host(load({}), paged_kv());
  const TokenBatch batch = batch_of(std::span(tokens_).first(9));
  EXPECT_LE(max_difference(model_.forward(batch).logits, host.forward(batch).logits), 1e-4);
}

TEST_P(CudaFormatTest, MatricesAreArrangedForTensorCores) {
  for (const Linear* matrix : {&weights_->embedding, &weights_->layers[0].qkv,
                               &weights_->layers[1].gate_up, &weights_->layers[1].down}) {
    for (const Linear::Part& part : matrix->parts()) {
      EXPECT_EQ(part.in_fragments, has_fragments(part.format)) << format_name(part.format);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaFormatTest,
                         testing::Values("float32", "bfloat16", "float16", "int8", "gemma3-mixed",
                                         "gemma2-q4_k"),
                         ParameterName());

class CudaModelTest : public testing::Test {
 protected:
  Golden golden_{"gemma3-a"};
  std::shared_ptr<const TransformerWeights> weights_ = load_rows(golden_.folder(), at::kFloat);
  TransformerModel model_{weights_, paged_kv(), emulated()};
  std::vector<Token> tokens_ = golden_.tokens("tokens");
};

TEST_F(CudaModelTest, BestTokensStandForTheLogits) {
  model_.prefill_get_last_logits(std::span(tokens_).first(4));
  const TokenBatch batch = batch_of(std::span(tokens_).subspan(4, 5));
  const Tensor logits = model_.forward(batch).logits;
  model_.truncate(4);
  const ForwardResult result = model_.forward(batch, {.logits_use = LogitsUse::kBest});
  EXPECT_FALSE(result.logits.defined());
  EXPECT_FALSE(result.final_hidden.defined());
  ASSERT_EQ(result.best.size(), 5U);
  for (int64_t node = 0; node < 5; ++node) {
    const GreedyChoice wanted = greedy_choice(LogitRow::of(logits, node), {}, {});
    EXPECT_EQ(result.best[static_cast<size_t>(node)].token, wanted.token);
    EXPECT_EQ(result.best[static_cast<size_t>(node)].gap, wanted.gap);
  }
  TransformerModel host(load_model(golden_.folder()), paged_kv());
  EXPECT_TRUE(host.forward(batch, {.logits_use = LogitsUse::kBest}).logits.defined())
      << "they are there";
}

TEST_F(CudaModelTest, RowsWithoutNumbersHaveNoBestToken) {
  const auto ops = cuda_ops(at::kCPU);
  const float inf = std::numeric_limits<float>::infinity();
  Tensor logits = at::zeros({4, 9000});
  logits[0][8500] = std::nanf("");
  logits[1].fill_(-inf);
  logits[2][3] = inf;
  logits[3].fill_(-inf);
  logits[3][8999] = 1.0F;
  Tensor found = at::empty({12}, at::kInt);
  ops->find_best(logits, found);
  const std::vector<GreedyChoice> best = read_best(found);
  ASSERT_EQ(best.size(), 4U);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(best[row].token, -1) << row;
  }
  EXPECT_EQ(best[3].token, 8999);
  EXPECT_EQ(best[3].gap, inf) << "no other token is possible";
}

TEST_F(CudaModelTest, Bfloat16PagesAndWeightsFollowTheCpu) {
  const auto narrow = load_rows(golden_.folder(), at::kBFloat16);
  TransformerModel device(narrow, paged_kv(16, KvFormat::kBFloat16), emulated());
  TransformerModel host(load_model(golden_.folder(), {.dtype = at::kBFloat16}),
                        paged_kv(16, KvFormat::kBFloat16));
  const TokenBatch batch = batch_of(std::span(tokens_).first(10));
  EXPECT_LE(max_difference(device.forward(batch).logits, host.forward(batch).logits), 1e-2);
}

TEST_F(CudaModelTest, RowsUnpackToWhatPanelsHold) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kChar}) {
    const auto rows = load_rows(golden_.folder(), dtype);
    const auto panels = load_model(golden_.folder(), {.dtype = dtype});
    EXPECT_TRUE(at::equal(rows->head.unpack(), panels->head.unpack())) << dtype;
    EXPECT_TRUE(at::equal(rows->layers[1].gate_up.unpack(), panels->layers[1].gate_up.unpack()));
    EXPECT_EQ(rows->fingerprint, panels->fingerprint);
  }
}

TEST_F(CudaModelTest, RandomWeightsAndHeadsFollowTheCpu) {
  const auto plain = load_model_tensors(golden_.folder(), {.dtype = at::kFloat});
  const std::shared_ptr<const TransformerWeights> host = pack(*plain);
  const std::shared_ptr<const TransformerWeights> device = pack(*plain, {.place = kEmulated});
  const auto head = random_mtp_head(*host, 1);
  const auto on_host = make_mtp_model(head, 0, host, paged_kv());
  const auto on_device = make_mtp_model(head, 0, device, paged_kv(), emulated());
  const TokenBatch batch = batch_of(std::span(tokens_).first(3));
  EXPECT_LE(max_difference(on_device->forward(batch).logits, on_host->forward(batch).logits), 1e-4);
  EXPECT_EQ(device->layers[0].qkv.layout(), WeightLayout::kRows);
}

TEST_F(CudaModelTest, BlockDraftersFollowTheCpu) {
  const auto host = load_model(golden_.folder(), {.dtype = at::kFloat});
  const TokenSpan committed = std::span(tokens_).first(6);
  Draft draft = Draft::root(committed.back());
  draft.add(committed.front(), 0);
  const std::vector<int64_t> root = {0};
  const std::vector<int64_t> child = {1};
  for (const BlockMethod method :
       {BlockMethod::kDFlash, BlockMethod::kDSpark, BlockMethod::kDomino, BlockMethod::kDFlash2}) {
    BlockHeadConfig config = make_block_head_config(*host, 2, 4);
    config.method = method;
    config.markov = {.rank = 4, .gate = MarkovGate::kGated};
    config.domino = {.state_size = 6, .rank = 4};
    config.dflash2 = {.rank = 4, .candidates = 512, .kernel_size = 2, .group_size = 2};
    const TemporaryFolder folder;
    save_block_head(*random_block_head(config, {.seed = 3}), folder.path(), at::kFloat);
    BlockHeadModel on_host(load_block_head(folder.path(), *host, {}), host, paged_kv(),
                           {.max_length = 64});
    BlockHeadModel on_device(load_block_head(folder.path(), *weights_, {}), weights_, paged_kv(),
                             {.max_length = 64, .ops = cuda_ops(at::kCPU)});
    const Tensor features = at::randn({5, on_host.feature_width()});
    for (BlockHeadModel* model : {&on_host, &on_device}) {
      model->keep(committed, features);
      model->evaluate(committed.back(), model->depth());
    }
    for (const auto& node : {root, child}) {
      EXPECT_LE(max_difference(on_device.logits(draft, node), on_host.logits(draft, node)), 1e-3)
          << block_method_name(method);
    }
  }
}

TEST_F(CudaModelTest, AForwardTakesNoMemory) {
  model_.prefill_get_last_logits(std::span(tokens_).first(5));
  const TokenBatch batch = batch_of(std::span(tokens_).subspan(5, 3));
  model_.forward(batch);
  commit_all(model_);
  const CountingAllocator counted;
  const ForwardResult result = model_.forward(batch);
  EXPECT_EQ(counted.count(),
            0);  // the first forward's results are gone: their memory is used again
}

TEST_F(CudaModelTest, WhatNoKernelTakesIsAnError) {
  const auto doubles = load_rows(golden_.folder(), at::kDouble);
  TransformerModel model(doubles, paged_kv(), emulated());
  EXPECT_THROW(model.forward(batch_of(tokens_)), Error);
}

TEST(CudaWindowSlackTest, NoKernelReadsWhatWasGivenBack) {
  const Golden golden("gemma3-a");  // windows of 5
  const auto weights = load_rows(golden.folder(), at::kFloat);
  TransformerModel model(weights, paged_kv(2, KvFormat::kNative, 0, 2), emulated());
  TransformerModel plain(weights, paged_kv(2), emulated());
  const auto tokens = golden.tokens("tokens");
  const std::vector<int64_t> parents = {-1, 0, 0};
  std::vector<Tensor> logits;
  for (TransformerModel* each : {&model, &plain}) {
    each->forward(batch_of(std::span(tokens).first(14)));
    std::vector<int64_t> path(14);
    std::iota(path.begin(), path.end(), 0);
    each->commit(path);
    poison_unused_pages(*each);
    TokenBatch tree = batch_of(std::span(tokens).subspan(14, 3));
    tree.parents = parents;
    logits.push_back(each->forward(tree).logits.clone());
  }
  EXPECT_EQ(model.cache().statistics().free_pages, 1) << "three, of which the tree has taken two";
  EXPECT_FALSE(logits[0].isnan().any().item<bool>());
  EXPECT_TRUE(at::equal(logits[0], logits[1]));
}

TEST(CudaAdapterTest, AdaptedLogitsMatch) {
  const Golden golden("gemma3-lora-a");
  const auto base = load_rows(test_data("gemma3-a"), at::kFloat);
  TransformerModel model(base, paged_kv(), emulated());
  model.push_adapter({load_lora(golden.folder(), base)});
  const Tensor logits = model.forward(batch_of(golden.tokens("tokens2"))).logits;
  EXPECT_LE(max_difference(logits, golden.tensor("logits2")), 1e-4);
}

TEST(CudaEncoderTest, StatesAreThoseOfTheReference) {
  const Golden golden("embeddinggemma-a");
  Encoder encoder(load_rows(golden.folder(), at::kFloat), paged_kv(), emulated());
  const auto first = golden.tokens("short.tokens");
  const auto second = golden.tokens("sentence.tokens");
  std::vector<Token> both = first;
  both.insert(both.end(), second.begin(), second.end());
  TokenBatch batch = batch_of(both);
  batch.rows.assign(first.size(), 0);
  batch.rows.insert(batch.rows.end(), second.size(), 1);
  const Tensor wanted = at::cat({golden.tensor("short.hidden"), golden.tensor("sentence.hidden")});
  EXPECT_LE(max_difference(encoder.forward(batch), wanted), 5e-5);
}

}  // namespace
}  // namespace specdec
