#include "core/embeddings/embedding_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/transformer/encoder.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The texts of the golden set, as its make_golden has them, but the one with a control piece.
const std::map<std::string, std::string> kTexts = {
    {"short", "hello"},
    {"sentence", "  the ocean is  deep and blue\n"},
    {"unicode", "na\u00efve caf\u00e9 \u6c34"},
    {"long",
     "the tide comes in and the tide goes out, and the sand is wet and then dry and then wet "
     "again"}};

EmbeddingParts tiny_parts(std::optional<at::ScalarType> dtype = {}) {
  return load_embedding_parts(test_data("embeddinggemma-a"), {.dtype = dtype});
}

class EmbeddingModelTest : public testing::Test {
 protected:
  static EmbeddingModel make(const EmbeddingOptions& options = {}) {
    return EmbeddingModel(tiny_parts(), paged_kv(), options);
  }
  static Tensor embed(EmbeddingModel& model, const std::string& text,
                      const std::string& prompt = "") {
    return model.embed(std::vector<std::string>{text}, prompt)[0];
  }

  Golden golden_{"embeddinggemma-a"};
};

TEST_F(EmbeddingModelTest, TokensStatesAndEmbeddingsAreThoseOfTheReference) {
  for (const auto dtype : {std::optional<at::ScalarType>(), {at::kFloat}, {at::kDouble}}) {
    const EmbeddingParts parts = tiny_parts(dtype);
    Encoder encoder(parts.weights, paged_kv());
    EmbeddingModel model(parts, paged_kv());
    for (const auto& [name, text] : kTexts) {
      const auto tokens = model.encode(text);
      EXPECT_EQ(tokens, golden_.tokens(name + ".tokens"));
      const Tensor states = encoder.forward({.tokens = token_tensor(tokens)});
      EXPECT_LE(max_difference(states, golden_.tensor(name + ".hidden")), 2e-5) << name;
      EXPECT_LE(max_difference(embed(model, text), golden_.tensor(name + ".embedding")), 1e-5)
          << name;
      EXPECT_LE(max_difference(embed(model, text, model.modules().prompt("query")),
                               golden_.tensor(name + ".query")),
                1e-5)
          << name;
    }
  }
}

TEST_F(EmbeddingModelTest, ControlPiecesAreTextUnlessTheyAreWanted) {
  const std::string text = "a <eos> in a text";
  EXPECT_NE(make().encode(text), golden_.tokens("control.tokens"));
  EmbeddingModel model = make({.special = true});
  EXPECT_EQ(model.encode(text), golden_.tokens("control.tokens"));
  EXPECT_LE(max_difference(embed(model, text), golden_.tensor("control.embedding")), 1e-5);
}

TEST_F(EmbeddingModelTest, ABatchGivesTheBitsOfItsTextsAlone) {
  std::vector<std::string> texts;
  for (const auto& [name, text] : kTexts) {
    texts.push_back(text);
  }
  EmbeddingModel model = make();
  const Tensor together = model.embed(texts);
  EXPECT_EQ(together.sizes(), (std::vector<int64_t>{4, 12}));
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_TRUE(at::equal(together[static_cast<int64_t>(i)], embed(model, texts[i])));
  }
  EmbeddingModel small = make({.batch_tokens = 20});
  EXPECT_TRUE(at::equal(together, small.embed(texts)));
  EXPECT_EQ(model.embed(std::vector<std::string>{}).sizes(), (std::vector<int64_t>{0, 12}));
}

TEST_F(EmbeddingModelTest, PoolsNormalisesAndCutsAsAsked) {
  EmbeddingModel cut = make({.dimensions = 8});
  EXPECT_EQ(cut.dimensions(), 8);
  EXPECT_LE(max_difference(embed(cut, "hello"), golden_.tensor("short.truncated")), 1e-5);
  EmbeddingModel plain = make({.normalize = false});
  const Tensor vector = embed(plain, "hello");
  const double length = vector.norm().item<double>();
  EXPECT_GT(std::abs(length - 1.0), 1e-2);
  EXPECT_LE(max_difference(vector / length, golden_.tensor("short.embedding")), 1e-5);
  EmbeddingModel last = make({.pooling = {Pooling::kLast}});
  EXPECT_GT(max_difference(embed(last, "hello"), golden_.tensor("short.embedding")), 1e-2);
  EXPECT_THAT(error_message<ConfigError>([] { make({.dimensions = 13}); }),
              HasSubstr("13 dimensions were asked for, but embeddings have 12"));
  EXPECT_THAT(error_message<WeightsError>([] {
                make({.pooling = {Pooling::kLast, Pooling::kMax}});
              }),
              HasSubstr("'in_features' is 16, but what is before it gives 32 numbers"));
}

TEST_F(EmbeddingModelTest, APromptThatIsNotPooledIsStillSeen) {
  EmbeddingParts parts = tiny_parts();
  parts.modules.pools_prompt = false;
  parts.modules.dense.clear();
  const std::string prompt = "task: search result | query: ";
  EmbeddingModel model(parts, paged_kv(), {.pooling = {Pooling::kCls}, .normalize = false});
  Encoder encoder(parts.weights, paged_kv());
  const auto tokens = model.encode("hello", prompt);
  const Tensor states = encoder.forward({.tokens = token_tensor(tokens)});
  const auto skipped = 1 + std::ssize(parts.tokenizer->encode(prompt));
  EXPECT_TRUE(at::equal(embed(model, "hello", prompt), states[skipped]));
  EXPECT_TRUE(at::equal(embed(model, "hello"),
                        encoder.forward({.tokens = token_tensor(model.encode("hello"))})[0]));
}

TEST_F(EmbeddingModelTest, TextsThatDoNotFitAreErrorsOrCut) {
  EXPECT_EQ(make().max_length(), 64);
  EXPECT_THAT(error_message<Error>([] { (void)make().encode(""); }), HasSubstr("text is empty"));
  EmbeddingModel model = make({.max_length = 5});
  EXPECT_THAT(error_message<Error>([&] { (void)model.encode("hello"); }),
              HasSubstr("the text has 6 tokens, prompt and special tokens included, but the model "
                        "takes at most 5"));
  EmbeddingModel cutting = make({.truncate = true, .max_length = 5});
  auto tokens = golden_.tokens("short.tokens");
  EXPECT_THAT(cutting.encode("hello"), ElementsAre(2, tokens[1], tokens[2], tokens[3], 1));
  EXPECT_THAT(error_message<ConfigError>([] { make({.max_length = 2}); }),
              HasSubstr("2 of them are special ones"));
}

TEST_F(EmbeddingModelTest, DamagedDenseModulesAreNamed) {
  const TemporaryFolder copy;
  std::filesystem::copy(
      golden_.folder(), copy.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(copy.path() / "3_Dense/model.safetensors",
                             copy.path() / "2_Dense/model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  const auto load = [&copy] { EmbeddingModel(load_embedding_parts(copy.path()), paged_kv()); };
  EXPECT_THAT(error_message<WeightsError>(load), HasSubstr("2_Dense"));
  std::filesystem::remove(copy.path() / "2_Dense/model.safetensors");
  EXPECT_THAT(error_message<WeightsError>(load), HasSubstr("model.safetensors"));
}

TEST(DecoderEmbeddingTest, HiddenStatesAreThoseOfThePrefill) {
  const auto parts = load_embedding_parts(SPECDEC_SOURCE_DIR "/models/draft");
  EmbeddingModel last(parts, paged_kv(), {.normalize = false});
  EmbeddingModel mean(parts, paged_kv(), {.pooling = {Pooling::kMean}, .normalize = false});
  // Longer than a piece of a prefill; and with a second text, which makes a batch.
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "Fellow citizens, ";
  }
  const std::vector<std::string> texts = {"The people.", "A word", text, "of the union"};
  const Tensor vectors = last.embed(texts);
  const Tensor means = mean.embed(texts);
  TransformerModel model(parts.weights, paged_kv());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto tokens = last.encode(texts[i]);
    EXPECT_EQ(tokens.front(), *parts.tokenizer->bos());
    const Tensor states = model.prefill(tokens, {.hidden = Hidden::kAll}).final_hidden;
    const auto row = static_cast<int64_t>(i);
    EXPECT_TRUE(at::equal(vectors[row], states[states.size(0) - 1])) << i;
    EXPECT_LE(max_difference(means[row], states.mean(0)), 1e-5) << i;
  }
}

}  // namespace
}  // namespace specdec
