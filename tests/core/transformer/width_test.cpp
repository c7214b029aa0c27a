// The brand: a token verified in a draft gets the bits that decoding gives it, so that greedy
// speculation cannot turn a near tie (`model.verify_consistent`). Compared bit by bit with decoding
// token by token: chains, trees, rows and prefills of any width, whatever the threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <random>

#include "core/families/gemma/config.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/llama/config.h"
#include "core/families/model.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

struct WidthCase {
  std::string name;
  const char* family;  // nullptr = Qwen 2, which has biases
  at::ScalarType dtype;
  int threads;
  KvFormat cache = KvFormat::kNative;
  ActivationFormat activations = ActivationFormat::kFloat32;
  /// Formats of a GGUF file, instead of the dtype: q and k, the embedding, and v, the other
  /// matrices. They need rows of 256 inputs.
  std::optional<std::pair<WeightFormat, WeightFormat>> stored = {};
  std::string gemma4 = {};  ///< instead of the family: a Gemma 3n or 4, what its config says more
  KvRotation rotation = KvRotation::kNone;
  int64_t head_dim = 26;  ///< of the families
};

void PrintTo(const WidthCase& one, std::ostream* out) { *out << one.name; }

constexpr const char* kQwen2 = R"({"model_type": "qwen2", "vocab_size": 515, "hidden_size": 90,
  "intermediate_size": 163, "num_hidden_layers": 3, "num_attention_heads": 3,
  "num_key_value_heads": 1, "max_position_embeddings": 640, "use_sliding_window": true,
  "sliding_window": 21, "max_window_layers": 1})";

/// Begins a config of Gemma 3n or 4.
constexpr const char* kGemma4 = R"({"vocab_size": 515, "vocab_size_per_layer_input": 500,
  "hidden_size": 90, "intermediate_size": 163, "num_attention_heads": 3, "num_key_value_heads": 1,
  "head_dim": 26, "sliding_window": 21, "max_position_embeddings": 640, "num_hidden_layers": 4,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";

constexpr const char* kDense = R"(, "model_type": "gemma4_text", "global_head_dim": 50,
  "attention_k_eq_v": true, "num_global_key_value_heads": 3, "hidden_size_per_layer_input": 0})";

constexpr const char* kExperts = R"(, "model_type": "gemma4_text", "global_head_dim": 50,
  "attention_k_eq_v": true, "enable_moe_block": true, "num_experts": 7, "top_k_experts": 3,
  "moe_intermediate_size": 37, "hidden_size_per_layer_input": 0})";

constexpr const char* kSharing = R"(, "model_type": "gemma4_text", "global_head_dim": 50,
  "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 11, "use_double_wide_mlp": true})";

constexpr const char* kGemma3n = R"(, "model_type": "gemma3n_text", "num_kv_shared_layers": 2,
  "hidden_size_per_layer_input": 11, "laurel_rank": 5, "altup_num_inputs": 3,
  "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0]})";

constexpr const char* kStored = R"({"model_type": "llama", "vocab_size": 515, "hidden_size": 256,
  "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 640})";

/// Matrices [out, 256] in parts, each in its own format.
Linear stored_matrix(const std::vector<LinearPart>& parts, ActivationFormat activations) {
  Linear matrix(parts, 256, Placement{});
  int64_t first = 0;
  for (const auto& [out, format] : parts) {
    const StoredRows rows =
        random_stored_rows(format, out, 256, static_cast<uint64_t>(first + out));
    for (const auto& row : rows.bytes) {
      matrix.set_stored_row(first++, row.data());
    }
  }
  matrix.set_activations(activations);
  return matrix;
}

std::shared_ptr<const TransformerWeights> stored_weights(const WidthCase& asked) {
  const auto weights = pack(*random_model(parse_llama_config(kStored, "stored"), {.seed = 4}));
  const auto [first, second] = *asked.stored;
  const ActivationFormat activations = asked.activations;
  weights->activations = activations;
  weights->embedding = weights->head = stored_matrix({{515, first}}, activations);
  for (LayerWeights& layer : weights->layers) {
    layer.qkv = stored_matrix({{256 + 128, first}, {128, second}}, activations);
    layer.output = layer.down = stored_matrix({{256, second}}, activations);
    layer.gate_up = stored_matrix({{512, second}}, activations);
  }
  return weights;
}

/// Odd sizes, so that kernels have tails, and products large enough for a second thread when many
/// nodes are new, but not when one is.
std::shared_ptr<const TransformerWeights> random_weights(const WidthCase& asked) {
  if (asked.stored) {
    return stored_weights(asked);
  }
  const RandomWeightsOptions options{.seed = 4,
                                     .dtype = asked.dtype == at::kChar ? at::kFloat : asked.dtype,
                                     .norm_deviation = 0.3};
  const PackOptions packing{.dtype = asked.dtype, .activations = asked.activations};
  if (!asked.gemma4.empty()) {
    return pack(*random_model(parse_gemma4_config(kGemma4 + asked.gemma4, asked.name), options),
                packing);
  }
  if (asked.family == nullptr) {
    return pack(*random_model(parse_llama_config(kQwen2, "qwen2"), options), packing);
  }
  const auto text = fmt::format(
      R"({{"model_type": "{}", "vocab_size": 515, "hidden_size": 90, "intermediate_size": 163,
           "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1,
           "head_dim": {}, "query_pre_attn_scalar": 25, "max_position_embeddings": 640,
           "sliding_window": 21,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]{}}})",
      asked.family, asked.head_dim,
      asked.family == std::string("gemma2")
          ? R"(, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 1.5)"
          : "");
  return pack(*random_model(parse_gemma_config(text, asked.name), options), packing);
}

class WidthTest : public testing::TestWithParam<WidthCase> {
 protected:
  static constexpr int64_t kPrompt = 23;

  ~WidthTest() override { at::set_num_threads(threads_); }

  std::vector<Token> random_tokens(int64_t count) {
    std::vector<Token> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<Token>(random_() % 515));
    }
    return tokens;
  }

  void prefill_both() {
    at::set_num_threads(1);
    model_.prefill_get_last_logits(prompt_);
    plain_.prefill_get_last_logits(prompt_);
  }

  /// Logits of the model under test; decoding runs on one thread.
  Tensor verified(const Draft& draft) {
    at::set_num_threads(GetParam().threads);
    Tensor logits = model_.verify_get_logits(draft);
    at::set_num_threads(1);
    return logits;
  }

  /// Every node of a draft decoded alone after its kept ancestors: [n, vocab].
  Tensor decoded(const Draft& draft) {
    Tensor logits = at::empty({draft.size(), 515});
    decode_branch(draft, 0, logits);
    return logits;
  }
  void decode_branch(const Draft& draft, int64_t node, Tensor& logits) {
    const int64_t length = plain_.length();
    logits[node] = plain_.decode_get_logits({&draft.tokens[static_cast<size_t>(node)], 1})[0];
    for (const int64_t child : draft.children(node)) {
      decode_branch(draft, child, logits);
    }
    plain_.truncate(length);
  }

  static Draft chain(const std::vector<Token>& tokens, int64_t size) {
    Draft draft = Draft::root(tokens[0]);
    for (int64_t i = 1; i < size; ++i) {
      draft.add(tokens[static_cast<size_t>(i)], i - 1);
    }
    return draft;
  }

  /// Each node after a random earlier one, the newest ones more often: deep and broad.
  Draft random_tree(int64_t nodes) {
    const auto tokens = random_tokens(nodes);
    Draft draft = Draft::root(tokens[0]);
    for (int64_t node = 1; node < nodes; ++node) {
      const int64_t back = static_cast<int64_t>(random_() % 5);
      draft.add(tokens[static_cast<size_t>(node)], std::max<int64_t>(0, node - 1 - back));
    }
    return draft;
  }

  int threads_ = at::get_num_threads();
  std::mt19937_64 random_{17};
  std::shared_ptr<const TransformerWeights> weights_ = random_weights(GetParam());
  const bool grouped_ = kv_key_group(GetParam().cache) > 1;
  KvStoreFactory caches_ =  // with a slack that lets decode_branch go back to the prompt
      paged_kv(grouped_ ? kKeyGroup : 16, GetParam().cache, 0, grouped_ ? 640 : 0,
               GetParam().rotation);
  TransformerModel model_{weights_, caches_};
  TransformerModel plain_{weights_, caches_};
  std::vector<Token> prompt_ = random_tokens(kPrompt);
};

TEST_P(WidthTest, AVerifiedChainHasDecodingsBits) {
  const auto tokens = random_tokens(130);
  prefill_both();
  const Tensor single = decoded(chain(tokens, 130));
  std::vector<int64_t> widths(16);
  std::iota(widths.begin(), widths.end(), 1);
  widths.insert(widths.end(), {24, 25, 31, 64, 65, 130});
  for (const int64_t width : widths) {
    EXPECT_TRUE(at::equal(verified(chain(tokens, width)), single.narrow(0, 0, width))) << width;
    model_.truncate(kPrompt);
  }
}

TEST_P(WidthTest, AVerifiedTreeHasDecodingsBits) {
  prefill_both();
  for (const int64_t width : {2, 5, 12, 64, 80, 250}) {
    const Draft draft = random_tree(width);
    EXPECT_TRUE(at::equal(verified(draft), decoded(draft))) << width;
    model_.truncate(kPrompt);
  }
}

TEST_P(WidthTest, KeepingAPathChangesNoBit) {
  prefill_both();
  Draft draft = Draft::root(1);
  draft.add(2, 0);
  draft.add(3, 0);
  draft.add(4, 2);
  verified(draft);
  model_.commit(std::vector<int64_t>{0, 2, 3});
  EXPECT_TRUE(at::equal(verified(Draft::root(5))[0], decoded(chain({1, 3, 4, 5}, 4))[3]));
}

TEST_P(WidthTest, APrefillHasDecodingsBits) {
  const auto tokens = random_tokens(520);  // more than two chunks of attention
  at::set_num_threads(1);
  plain_.prefill_get_last_logits({tokens.data(), 1});
  const std::vector<Token> others(tokens.begin() + 1, tokens.end());
  const Tensor single = decoded(chain(others, 519));
  at::set_num_threads(GetParam().threads);
  const TokenBatch batch{.tokens = at::tensor(tokens, at::kInt)};
  EXPECT_TRUE(at::equal(model_.forward(batch).logits.slice(0, 1), single));
  for (const size_t length : {2U, 63U, 65U, 257U, 300U, 511U, 520U}) {
    const auto last = static_cast<int64_t>(length) - 2;
    EXPECT_TRUE(at::equal(model_.prefill_get_last_logits({tokens.data(), length}), single[last]))
        << length;
  }
}

TEST_P(WidthTest, RowsBesideEachOtherHaveDecodingsBits) {
  const auto tokens = random_tokens(3);
  prefill_both();
  const int64_t length = model_.length();
  const std::vector<RowId> rows = {model_.fork(0, length), 0, model_.fork(0, length)};
  const Tensor beside = model_.decode_get_logits(tokens, rows);
  for (int64_t row = 0; row < 3; ++row) {
    const Draft alone = Draft::root(tokens[static_cast<size_t>(row)]);
    EXPECT_TRUE(at::equal(beside[row], decoded(alone)[0])) << row;
  }
}

TEST_P(WidthTest, TreesOfTwoRowsInOneForwardHaveDecodingsBits) {
  const auto tokens = random_tokens(8);
  prefill_both();
  const RowId other = model_.fork(0, model_.length());
  const Draft trees[] = {
      {.tokens = {tokens[0], tokens[1], tokens[2], tokens[3]}, .parents = {-1, 0, 0, 2}},
      {.tokens = {tokens[4], tokens[5], tokens[6], tokens[7]}, .parents = {-1, 0, 1, 0}}};
  TokenBatch batch{.tokens = token_tensor(tokens)};
  for (const RowId row : {other, RowId{0}}) {
    const Draft& tree = trees[row == other ? 0 : 1];
    batch.rows.insert(batch.rows.end(), 4, row);
    batch.parents.insert(batch.parents.end(), tree.parents.begin(), tree.parents.end());
  }
  const Tensor logits = model_.forward(batch).logits;
  EXPECT_TRUE(at::equal(logits.slice(0, 0, 4), decoded(trees[0])));
  EXPECT_TRUE(at::equal(logits.slice(0, 4), decoded(trees[1])));
}

WidthCase rotated_case(WidthCase one) {
  one.rotation = KvRotation::kHadamard;
  return one;
}

WidthCase three_bits(const std::string& name, const char* family, int threads) {
  WidthCase one{name, family, at::kFloat, threads, KvFormat::kQ3};
  one.head_dim = 40;
  return one;
}

WidthCase by_channel(const std::string& name, const char* family, int threads) {
  WidthCase one = three_bits(name, family, threads);
  one.cache = KvFormat::kKivi2;
  return one;
}

WidthCase gemma4_case(const std::string& name, const char* config, int threads,
                      at::ScalarType dtype = at::kFloat, KvFormat cache = KvFormat::kNative) {
  WidthCase one{name, nullptr, dtype, threads, cache};
  one.gemma4 = config;
  return one;
}

INSTANTIATE_TEST_SUITE_P(
    Gemma4, WidthTest,
    testing::Values(gemma4_case("dense", kDense, 1), gemma4_case("experts", kExperts, 1),
                    gemma4_case("experts_2_threads_bfloat16", kExperts, 2, at::kBFloat16),
                    gemma4_case("sharing_2_threads", kSharing, 2),
                    gemma4_case("sharing_bfloat16_cache", kSharing, 1, at::kFloat,
                                KvFormat::kBFloat16),
                    gemma4_case("sharing_q8_cache", kSharing, 1, at::kFloat, KvFormat::kQ8),
                    gemma4_case("dense_q4_cache", kDense, 2, at::kFloat, KvFormat::kQ4),
                    rotated_case(gemma4_case("sharing_rotated_q4_cache", kSharing, 2, at::kFloat,
                                             KvFormat::kQ4)),
                    gemma4_case("gemma3n", kGemma3n, 1),
                    gemma4_case("gemma3n_2_threads_bfloat16", kGemma3n, 2, at::kBFloat16)),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    All, WidthTest,
    testing::Values(
        WidthCase{"gemma1", "gemma", at::kFloat, 1}, WidthCase{"gemma2", "gemma2", at::kFloat, 1},
        WidthCase{"gemma3", "gemma3_text", at::kFloat, 1},
        WidthCase{"qwen2", nullptr, at::kFloat, 1},
        WidthCase{"gemma2_2_threads", "gemma2", at::kFloat, 2},
        WidthCase{"gemma3_bfloat16", "gemma3_text", at::kBFloat16, 1},
        WidthCase{"gemma2_bfloat16_cache", "gemma2", at::kFloat, 2, KvFormat::kBFloat16},
        WidthCase{"gemma3_bfloat16_cache", "gemma3_text", at::kBFloat16, 1, KvFormat::kBFloat16},
        WidthCase{"gemma3_float16_cache", "gemma3_text", at::kFloat, 2, KvFormat::kFloat16},
        WidthCase{"gemma2_fp8_cache", "gemma2", at::kFloat, 1, KvFormat::kFp8E4m3},
        WidthCase{"gemma3_q8_cache", "gemma3_text", at::kBFloat16, 2, KvFormat::kQ8},
        WidthCase{"gemma2_q4_cache", "gemma2", at::kFloat, 2, KvFormat::kQ4},
        three_bits("gemma3_q3_cache", "gemma3_text", 1),
        by_channel("gemma2_kivi2_cache", "gemma2", 2),
        WidthCase{"gemma2_hierarchical_cache", "gemma2", at::kFloat, 2, KvFormat::kHierarchical},
        rotated_case({"gemma3_rotated_q8_cache", "gemma3_text", at::kFloat, 2, KvFormat::kQ8}),
        rotated_case(three_bits("gemma2_rotated_q3_cache", "gemma2", 2)),
        rotated_case({"gemma3_rotated_hierarchical_cache", "gemma3_text", at::kBFloat16, 1,
                      KvFormat::kHierarchical}),
        WidthCase{"gemma3_int8", "gemma3_text", at::kChar, 1},
        WidthCase{"gemma2_int8_activations", "gemma2", at::kChar, 1, KvFormat::kNative,
                  ActivationFormat::kInt8},
        WidthCase{"gemma3_int8_activations_2_threads", "gemma3_text", at::kChar, 2,
                  KvFormat::kBFloat16, ActivationFormat::kInt8},
        WidthCase{"stored_q4_k_and_q6_k", nullptr, at::kFloat, 1, KvFormat::kNative,
                  ActivationFormat::kFloat32, std::pair{WeightFormat::kQ4K, WeightFormat::kQ6K}},
        WidthCase{"stored_q4_k_and_q6_k_int8_activations_2_threads", nullptr, at::kFloat, 2,
                  KvFormat::kNative, ActivationFormat::kInt8,
                  std::pair{WeightFormat::kQ4K, WeightFormat::kQ6K}},
        WidthCase{"stored_q2_k_and_q3_k_2_threads", nullptr, at::kFloat, 2, KvFormat::kNative,
                  ActivationFormat::kFloat32, std::pair{WeightFormat::kQ2K, WeightFormat::kQ3K}},
        WidthCase{"stored_q3_k_and_q2_k_int8_activations", nullptr, at::kFloat, 1,
                  KvFormat::kNative, ActivationFormat::kInt8,
                  std::pair{WeightFormat::kQ3K, WeightFormat::kQ2K}},
        WidthCase{"stored_q5_k_and_q5_0_int8_activations", nullptr, at::kFloat, 1,
                  KvFormat::kNative, ActivationFormat::kInt8,
                  std::pair{WeightFormat::kQ5K, WeightFormat::kQ50}},
        WidthCase{"stored_fp8_2_threads", nullptr, at::kFloat, 2, KvFormat::kNative,
                  ActivationFormat::kFloat32,
                  std::pair{WeightFormat::kFp8x128, WeightFormat::kFp8x32}},
        WidthCase{"stored_int4", nullptr, at::kFloat, 1, KvFormat::kNative,
                  ActivationFormat::kFloat32,
                  std::pair{WeightFormat::kInt4x32, WeightFormat::kInt4x128}},
        WidthCase{"stored_int4_int8_activations", nullptr, at::kFloat, 1, KvFormat::kNative,
                  ActivationFormat::kInt8,
                  std::pair{WeightFormat::kInt4x128, WeightFormat::kInt4x32}},
        WidthCase{"stored_iq4_xs_and_iq2_s_2_threads", nullptr, at::kFloat, 2, KvFormat::kNative,
                  ActivationFormat::kFloat32, std::pair{WeightFormat::kIq4Xs, WeightFormat::kIq2S}},
        WidthCase{"stored_nf4_and_fp4", nullptr, at::kFloat, 1, KvFormat::kNative,
                  ActivationFormat::kFloat32,
                  std::pair{WeightFormat::kNf4x32, WeightFormat::kFp4x16}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace specdec
