// Adapted forwards: the golden set, every family against a checkpoint into whose tensors the
// adapter was merged by their names, stored blocks, the bits of verified tokens, and the stack.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <deque>
#include <limits>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/adapters/lora_modules.h"
#include "core/transformer/reference.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/lora_folder.h"
#include "tests/support/max_difference.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using Weights = std::shared_ptr<const TransformerWeights>;

TokenBatch batch_of(std::span<const Token> tokens) {
  return {.tokens = at::tensor(c10::ArrayRef<Token>(tokens.data(), tokens.size()), at::kInt)};
}

void commit_pending(LanguageModel& model) {
  std::vector<int64_t> path(static_cast<size_t>(model.pending()));
  std::iota(path.begin(), path.end(), 0);
  model.commit(path);
}

class AdaptedGoldenTest : public testing::Test {
 protected:
  AdaptedGoldenTest() { model_.push_adapter({adapter_}); }

  Golden golden_{"gemma3-lora-a"};
  Weights base_ = load_model(test_data("gemma3-a"));
  std::shared_ptr<const LoraAdapter> adapter_ = load_lora(golden_.folder(), base_);
  TransformerModel model_{base_, paged_kv()};
};

TEST_F(AdaptedGoldenTest, WholeMatches) {
  const ForwardResult result =
      model_.forward(batch_of(golden_.tokens("tokens2")), {.hidden = Hidden::kAll});
  EXPECT_LE(max_difference(result.logits, golden_.tensor("logits2")), 1e-4);
  EXPECT_LE(max_difference(result.final_hidden, golden_.tensor("hidden2")), 1e-4);
}

TEST_F(AdaptedGoldenTest, ChunksMatch) {
  const auto tokens = golden_.tokens("tokens2");
  const Tensor wanted = golden_.tensor("logits2");
  for (const size_t chunk : {size_t{1}, size_t{3}, size_t{7}}) {
    model_.truncate(0);
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const size_t size = std::min(chunk, tokens.size() - begin);
      const Tensor logits = model_.forward(batch_of(std::span(tokens).subspan(begin, size))).logits;
      commit_pending(model_);
      const Tensor rows = wanted.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(size));
      ASSERT_LE(max_difference(logits, rows), 1e-4) << "chunks of " << chunk << " at " << begin;
    }
  }
}

TEST_F(AdaptedGoldenTest, GreedyIsExact) {
  const auto wanted = golden_.tokens("greedy");
  Tensor logits = model_.prefill_get_last_logits(golden_.tokens("prompt"));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
    ASSERT_EQ(token, wanted[i]) << i;
    logits = model_.decode_get_logits({&token, 1})[0];
  }
}

TEST_F(AdaptedGoldenTest, VerifiedTokensHaveDecodingsBits) {
  const auto tokens = golden_.tokens("greedy");
  model_.prefill_get_last_logits(golden_.tokens("prompt"));
  const int64_t kept = model_.length();
  std::vector<Tensor> decoded;
  for (const Token token : tokens) {
    decoded.push_back(model_.decode_get_logits({&token, 1})[0]);
  }
  for (const size_t width : {size_t{2}, size_t{5}, size_t{17}, tokens.size()}) {
    model_.truncate(kept);
    const Tensor logits = model_.forward(batch_of(std::span(tokens).first(width))).logits;
    for (size_t i = 0; i < width; ++i) {
      EXPECT_TRUE(at::equal(logits[static_cast<int64_t>(i)], decoded[i])) << width << " at " << i;
    }
  }
}

TEST_F(AdaptedGoldenTest, RowsBesideEachOtherHaveDecodingsBits) {
  const std::vector<Token> tokens = {5, 9, 300};
  model_.prefill_get_last_logits(golden_.tokens("prompt"));
  const int64_t length = model_.length();
  const std::vector<RowId> rows = {model_.fork(0, length), 0, model_.fork(0, length)};
  const Tensor beside = model_.decode_get_logits(tokens, rows);
  for (int64_t row = 0; row < 3; ++row) {
    model_.prefill_get_last_logits(golden_.tokens("prompt"));
    EXPECT_TRUE(at::equal(model_.decode_get_logits({&tokens[static_cast<size_t>(row)], 1})[0],
                          beside[row]));
  }
}

TEST_F(AdaptedGoldenTest, AnotherInstanceOfTheWeightsIsNotAdapted) {
  TransformerModel plain(base_, paged_kv());
  const auto tokens = Golden("gemma3-a").tokens("tokens");
  EXPECT_LE(
      max_difference(plain.forward(batch_of(tokens)).logits, Golden("gemma3-a").tensor("logits")),
      1e-4);
}

/// Random matrices for every tensor of a checkpoint that is a module, in two ranks.
std::vector<LoraMatrices> random_matrices(
    const std::vector<std::pair<std::string, at::IntArrayRef>>& shapes) {
  std::vector<LoraMatrices> matrices;
  at::manual_seed(3);
  for (const auto& [path, shape] : shapes) {
    const int64_t rank = path.find("q_proj") != std::string::npos ? 5 : 3;
    matrices.push_back(
        {path, 0.2 * at::randn({rank, shape[1]}), 0.2 * at::randn({shape[0], rank})});
  }
  return matrices;
}

/// The config of random_matrices; the head of a tied model has none.
std::string two_ranks(bool with_head) {
  return std::string(R"("r": 3, "lora_alpha": 3, "rank_pattern": {"q_proj": 5},
                        "alpha_pattern": {"q_proj": 10}, "target_modules": )") +
         (with_head ? R"(".*")" : R"("(?!lm_head).*")");
}

/// The factor that two_ranks gives a path.
double factor(const std::string& path) {
  return path.find("q_proj") != std::string::npos ? 2.0 : 1.0;
}

/// A copy of a checkpoint in float32 with an adapter in its tensors, by their names in the files.
class MergedCheckpoint {
 public:
  MergedCheckpoint(const std::filesystem::path& base, const std::filesystem::path& merged,
                   const std::filesystem::path& adapter) {
    const auto files = std::make_shared<CheckpointTensors>(base);
    std::map<std::string, LoraModule> modules;
    const Weights weights = load_model(base);
    for (const LoraModule& module : lora_modules(*weights)) {
      modules.emplace(module.name, module);
    }
    std::vector<std::pair<std::string, at::IntArrayRef>> shapes;
    for (const TensorEntry* entry : files->tensors()) {
      const std::string path = path_of(entry->name);
      if (modules.contains(lora_module_name(path))) {
        shapes.emplace_back(path, entry->shape);
      }
    }
    const auto matrices = random_matrices(shapes);
    write_lora(adapter, two_ranks(files->find("lm_head.weight") != nullptr), matrices);
    write(files, matrices, merged);
    for (const char* name : {"config.json", "generation_config.json"}) {
      if (std::filesystem::exists(base / name)) {
        std::filesystem::copy_file(base / name, merged / name);
      }
    }
  }

 private:
  static std::string path_of(const std::string& name) {
    return name.substr(0, name.size() - std::min(name.size(), std::string(".weight").size()));
  }

  static void write(const std::shared_ptr<const CheckpointTensors>& files,
                    const std::vector<LoraMatrices>& matrices,
                    const std::filesystem::path& merged) {
    std::filesystem::create_directories(merged);
    TensorSource source(files, Placement{});
    std::deque<Tensor> values;
    std::vector<TensorToWrite> tensors;
    for (const TensorEntry* entry : files->tensors()) {
      if (entry->name.find("vision") != std::string::npos) {
        continue;
      }
      values.push_back(source.load(entry->name, entry->shape, at::kFloat));
      for (const LoraMatrices& one : matrices) {
        if (one.path == path_of(entry->name)) {
          values.back() += factor(one.path) * at::matmul(one.b, one.a);
        }
      }
      const auto* data = static_cast<const std::byte*>(values.back().const_data_ptr());
      tensors.push_back({entry->name,
                         DType::kF32,
                         entry->shape,
                         {data, static_cast<size_t>(values.back().nbytes())}});
    }
    write_safetensors(merged / "model.safetensors", tensors);
  }
};

class AdaptedFamilyTest : public testing::TestWithParam<std::string> {};

TEST_P(AdaptedFamilyTest, AppliedIsMerged) {
  const Golden golden(GetParam());
  const TemporaryFolder folder;
  const auto merged = folder.path() / "merged";
  const auto adapter = folder.path() / "adapter";
  const MergedCheckpoint written(golden.folder(), merged, adapter);
  const LoadOptions options{.dtype = at::kFloat};
  const Weights base = load_model(golden.folder(), options);
  TransformerModel applied(base, paged_kv());
  applied.push_adapter({load_lora(adapter, base)});
  TransformerModel wanted(load_model(merged, options), paged_kv());
  const TokenBatch batch = batch_of(golden.tokens("tokens"));
  const Tensor logits = applied.forward(batch).logits;
  EXPECT_LE(max_difference(logits, wanted.forward(batch).logits), 1e-3);
  EXPECT_GT(max_difference(logits, golden.tensor("logits")), 0.1) << "it should have adapted";
}

INSTANTIATE_TEST_SUITE_P(All, AdaptedFamilyTest, testing::ValuesIn(all_golden_names()),
                         ParameterName());

class AdaptedBlocksTest : public testing::TestWithParam<std::string> {};

/// Adds an adapter to the plain tensors of its base.
void merge_plainly(const LoraAdapter& adapter, TransformerTensors& tensors) {
  for (const LoraPair& pair : adapter.pairs) {
    for (size_t i = 0; i < tensors.layers.size(); ++i) {
      const LayerWeights& from = adapter.base->layers[i];
      LayerTensors& to = tensors.layers[i];
      const std::pair<const Linear*, Tensor*> matrices[] = {{&from.qkv, &to.qkv},
                                                            {&from.output, &to.output},
                                                            {&from.gate_up, &to.gate_up},
                                                            {&from.down, &to.down}};
      for (const auto& [linear, tensor] : matrices) {
        if (linear == pair.matrix) {
          tensor->narrow(0, pair.first, pair.b.size(0)) += at::matmul(pair.b, pair.a);
        }
      }
    }
  }
}

TEST_P(AdaptedBlocksTest, BlocksStayAndTheAdapterIsAdded) {
  const Weights base = load_model(golden_gguf(GetParam()));
  std::vector<LoraMatrices> matrices;
  at::manual_seed(5);
  for (const LoraModule& module : lora_modules(*base)) {
    if (module.layer >= 0) {
      matrices.push_back({module.name, 0.1 * at::randn({4, module.matrix->in()}),
                          0.1 * at::randn({module.rows, 4})});
    }
  }
  const TemporaryFolder folder;
  write_lora(folder.path(), R"("r": 4, "lora_alpha": 8, "target_modules": "all-linear")", matrices);
  const auto adapter = load_lora(folder.path(), base);
  TransformerTensors tensors = unpack(*base);
  merge_plainly(*adapter, tensors);
  TransformerModel model(base, paged_kv());
  model.push_adapter({adapter});
  const std::vector<Token> tokens = {2, 5, 9, 4, 7, 7, 1, 3};
  const Tensor wanted =
      reference_forward(tensors, at::tensor(tokens, at::kLong).unsqueeze(0)).logits[0];
  EXPECT_LE(max_difference(model.forward(batch_of(tokens)).logits, wanted), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(All, AdaptedBlocksTest,
                         testing::ValuesIn(found_golden_gguf({"gemma2-q4_k", "gemma3-mixed",
                                                              "llama-q4_1"})),
                         ParameterName());

class AdapterStackTest : public AdaptedGoldenTest {
 protected:
  Tensor logits() {
    Tensor result = model_.forward(batch_of(golden_.tokens("tokens2"))).logits;
    model_.truncate(0);
    return result;
  }
};

TEST_F(AdapterStackTest, ScalesAddUp) {
  const Tensor once = logits();
  model_.clear_adapters();
  model_.push_adapter({adapter_, 0.75});
  model_.push_adapter({adapter_, 0.25});
  EXPECT_LE(max_difference(logits(), once), 1e-4);
  model_.push_adapter({adapter_, -1.0});
  TransformerModel plain(base_, paged_kv());
  EXPECT_LE(max_difference(logits(), plain.forward(batch_of(golden_.tokens("tokens2"))).logits),
            1e-4);
}

TEST_F(AdapterStackTest, PoppingGivesTheBitsBefore) {
  TransformerModel plain(base_, paged_kv());
  const Tensor base = plain.forward(batch_of(golden_.tokens("tokens2"))).logits;
  const Tensor once = logits();
  EXPECT_GT(max_difference(once, base), 0.1);
  model_.push_adapter({adapter_, 0.5});
  EXPECT_GT(max_difference(logits(), once), 1e-3);
  model_.pop_adapter();
  EXPECT_TRUE(at::equal(logits(), once));
  model_.clear_adapters();
  EXPECT_TRUE(at::equal(logits(), base));
}

TEST_F(AdapterStackTest, FingerprintsSayBaseAdaptersAndScales) {
  const std::string once = model_.adapters().fingerprint();
  EXPECT_NE(once, base_->fingerprint);
  model_.push_adapter({adapter_, 0.5});
  EXPECT_NE(model_.adapters().fingerprint(), once);
  model_.pop_adapter();
  EXPECT_EQ(model_.adapters().fingerprint(), once);
  model_.clear_adapters();
  EXPECT_EQ(model_.adapters().fingerprint(), base_->fingerprint);
  model_.push_adapter({adapter_, 0.5});
  EXPECT_NE(model_.adapters().fingerprint(), once);
}

TEST_F(AdapterStackTest, ChangesAreRefusedWhileARowHoldsTokens) {
  model_.prefill_get_last_logits(golden_.tokens("prompt"));
  EXPECT_THAT(error_message<Error>([&] { model_.pop_adapter(); }),
              HasSubstr("row 0 holds tokens (8 kept, 0 pending)"));
  EXPECT_THAT(error_message<Error>([&] { model_.push_adapter({adapter_}); }),
              HasSubstr("truncate"));
  EXPECT_THAT(error_message<Error>([&] { model_.clear_adapters(); }), HasSubstr("truncate"));
  EXPECT_EQ(model_.adapters().adapters().size(), 1U);
  model_.truncate(0);
  model_.pop_adapter();
  EXPECT_THROW(model_.pop_adapter(), InternalError);
}

TEST_F(AdapterStackTest, AdaptersOfOtherWeightsAndScalesThatAreNoNumbersAreRefused) {
  TransformerModel other(load_model(test_data("gemma3-a")), paged_kv());
  EXPECT_THAT(error_message<Error>([&] { other.push_adapter({adapter_}); }),
              HasSubstr("was read for other weights"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(error_message<Error>([&] {
                model_.push_adapter({adapter_, nan});
              }),
              HasSubstr("no finite number"));
}

}  // namespace
}  // namespace specdec
