#include "experiments/components/model_loading.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/small_byte_level_model.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// Keys and values of the first layer after a prompt.
std::pair<Tensor, Tensor> cached(const std::string& kv_dtype) {
  ModelLoader loader({.dtype = "float32", .kv_dtype = kv_dtype, .threads = 1});
  const auto model = loader.load(test_data("gemma3-a"));
  model->prefill_get_last_logits(std::vector<Token>{2, 3, 5, 7});
  return model->internals()->key_values(0, 0);
}

bool is_bfloat16(const Tensor& numbers) {
  return at::equal(numbers, numbers.to(at::kBFloat16).to(at::kFloat));
}

TEST(ModelLoadingTest, KvDtypeRoundsWhatTheCacheHolds) {
  const auto plain = cached("");
  const auto rounded = cached("bfloat16");
  EXPECT_TRUE(at::equal(cached("float32").first, plain.first));
  EXPECT_FALSE(is_bfloat16(plain.first));
  EXPECT_TRUE(at::equal(rounded.first, plain.first.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(at::equal(rounded.second, plain.second.to(at::kBFloat16).to(at::kFloat)));
}

TEST(ModelLoadingTest, KvDtypeIsRefusedBesideFloat64) {
  ModelLoader loader({.dtype = "float64", .kv_dtype = "bfloat16"});
  EXPECT_THAT(error_message<Error>([&] { loader.load(test_data("gemma3-a")); }),
              HasSubstr("kv_dtype bfloat16 needs float32 activations"));
}

TEST(ModelLoadingTest, ActivationsOfWeightsWithoutBlocksNameModelAndOption) {
  const auto folder = test_data("gemma3-a");
  for (const char* dtype : {"", "float32"}) {
    EXPECT_THAT(
        error_message<ConfigError>(
            [&] { (void)ModelLoader({.dtype = dtype, .activations = "int8"}).weights(folder); }),
        HasSubstr(folder.string() + ": activations (--activations): int8 needs weights in blocks"));
  }
}

TEST(ModelLoadingTest, FewerLayersMayBeActiveOfOneCheckpoint) {
  const auto folder = test_data("gemma3-a");
  ModelCatalog catalog;
  const ModelFiles& whole = catalog.read(folder);
  const ModelFiles& first = catalog.read(folder, 2);
  EXPECT_GT(whole.plan.size(), 2U);
  EXPECT_EQ(first.plan.size(), 2U);
  EXPECT_EQ(first.config.num_layers, 2);
  EXPECT_EQ(&catalog.read(folder, 0), &whole);
  EXPECT_THAT(error_message<ConfigError>([&] { catalog.read(folder, 99); }),
              HasSubstr("active_layers is 99, but the model has"));
  ModelLoader loader({.dtype = "float32", .threads = 1, .active_layers = {folder, 2}}, &catalog);
  const auto model = loader.load(folder);
  EXPECT_EQ(model->internals()->num_layers(), 2);
  EXPECT_EQ(loader.load(test_data("gemma2-a"))->internals()->num_layers(),
            catalog.read(test_data("gemma2-a")).config.num_layers)
      << "not of others";
  const auto names = loader.fingerprints();
  EXPECT_EQ(names.at(folder.string() + " (first 2 layers)"), model->weights().fingerprint);
  EXPECT_NE(model->weights().fingerprint, load_model(folder)->fingerprint);
}

TEST(ModelLoadingTest, HeadersThatTheCatalogReadAreNotReadAgain) {
  const TemporaryFolder folder;
  const auto original = test_data("gguf/llama-q4_1.gguf");
  const auto file = folder.path() / "m.gguf";
  std::filesystem::copy_file(original, file);
  ModelCatalog catalog;
  EXPECT_NE(catalog.read(file).tokenizer, nullptr);
  std::filesystem::remove(file);  // what is open stays readable
  ModelLoader loader({.dtype = "stored", .threads = 1}, &catalog);
  EXPECT_EQ(loader.weights(file)->fingerprint, load_model(original)->fingerprint);
  ModelLoader alone({.dtype = "stored", .threads = 1});
  EXPECT_THROW(alone.weights(file), WeightsError);
}

/// A file as llama.cpp quantises it, with matrices in several formats.
TEST(ModelLoadingTest, AllFormatsAreNamed) {
  ModelLoader loader({.dtype = "stored", .threads = 1});
  const auto weights = loader.weights(test_data("gguf/gemma3-mixed.gguf"));
  EXPECT_THAT(format_text(*weights),
              testing::AllOf(testing::HasSubstr("Q4_1"), testing::HasSubstr(", "),
                             testing::HasSubstr("Q5_0"), testing::HasSubstr("bfloat16")));
}

TEST(ModelLoadingTest, TokensThatPadTheVocabularyAreNeverGenerated) {
  const TemporaryFolder folder;
  const auto padded = folder.path() / "padded";
  std::filesystem::copy(test_data("qwen2-a"), padded);
  TokenizerFiles tokenizer;
  tokenizer.model = small_byte_level_model({"<end>"});
  write_tokenizer_files(tokenizer, padded);
  ModelCatalog catalog;
  const int64_t pieces = catalog.read(padded).tokenizer->vocab_size();
  ModelLoader loader({.dtype = "float32", .threads = 1}, &catalog);
  ModelLoader whole({.dtype = "float32", .threads = 1});  // knows no tokenizer
  const std::vector<Token> prompt{'a', 'b'};
  const Tensor logits = loader.load(padded)->prefill_get_last_logits(prompt);
  const Tensor all = whole.load(padded)->prefill_get_last_logits(prompt);
  ASSERT_GT(all.size(0), pieces);
  ASSERT_EQ(logits.sizes(), all.sizes());
  EXPECT_TRUE(at::equal(logits.slice(0, 0, pieces), all.slice(0, 0, pieces)));
  EXPECT_TRUE(logits.slice(0, pieces).isneginf().all().item<bool>());
  EXPECT_TRUE(all.isfinite().all().item<bool>());
}

TEST(ModelLoadingTest, SuppressedTokensAreNeverGenerated) {
  const TemporaryFolder folder;
  const auto model = folder.path() / "suppressed";
  std::filesystem::copy(test_data("gemma4-e-a"), model);
  std::filesystem::remove(model / "generation_config.json");
  folder.write("suppressed/generation_config.json", R"({"suppress_tokens": [7, 300, 262144]})");
  ModelCatalog catalog;
  const ModelFiles& files = catalog.read(model);
  EXPECT_EQ(files.config.suppressed_ids, (std::vector<Token>{7, 300}));
  EXPECT_THAT(files.notes, testing::Contains(HasSubstr("are never generated: 2 (7, 300)")));
  ModelLoader loader({.dtype = "float32", .threads = 1}, &catalog);
  ModelLoader scoring({.dtype = "float32", .suppresses = false, .threads = 1}, &catalog);
  const std::vector<Token> prompt{2, 9, 4};
  const auto decoding = loader.load(model);
  const Tensor logits = decoding->prefill_get_last_logits(prompt);
  Tensor all = scoring.load(model)->prefill_get_last_logits(prompt).clone();
  EXPECT_TRUE(all.isfinite().all().item<bool>());
  const Tensor ids = at::tensor({7, 300}, at::kLong);
  EXPECT_TRUE(logits.index_select(0, ids).isneginf().all().item<bool>());
  all.index_fill_(0, ids, logits[7].item<double>());
  EXPECT_TRUE(at::equal(logits, all)) << "the others are as they were";
  const Draft chain{.tokens = {5, 6}, .parents = {-1, 0}};
  EXPECT_TRUE(decoding->verify_get_logits(chain).index_select(1, ids).isneginf().all().item<bool>())
      << "of every verified node, so the distribution is one and the same";
}

TEST(ModelLoadingTest, DraftModelsMayPadTheSameTokensOtherwise) {
  ModelCatalog catalog;
  const ModelFiles& target = catalog.read(test_data("gguf/llama-f16.gguf"));
  ModelFiles draft = target;
  EXPECT_EQ(vocabulary_mismatch(target, draft), "");
  draft.config.vocab_size += 64;
  EXPECT_EQ(vocabulary_mismatch(target, draft), "");
  draft.tokenizer = nullptr;  // then nothing says that the tokens are the same
  EXPECT_THAT(vocabulary_mismatch(target, draft), HasSubstr("entries, the target's"));
}

}  // namespace
}  // namespace specdec
