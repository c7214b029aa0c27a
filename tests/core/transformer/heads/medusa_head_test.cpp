#include "core/transformer/heads/medusa_head.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/transformer/reference.h"
#include "core/transformer/tensor_writer.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/pickled_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kMedusaVocab = 11;
constexpr int64_t kMedusaHidden = 16;

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return RandomTensors({.seed = seed, .dtype = at::kFloat}).matrix(shape[0], shape[1]);
}

/// Heads with random parameters for a target.
MedusaHead random_head(const TransformerWeights& target, const MedusaConfig& config) {
  MedusaHead head = new_medusa_head(config, unpack(target), at::kFloat);
  uint64_t seed = 5;
  for (auto& blocks : head.blocks) {
    for (MedusaBlock& block : blocks) {
      block.weight = normal({kMedusaHidden, kMedusaHidden}, seed++);
      block.bias = normal({kMedusaHidden, kMedusaHidden}, seed++)[0].clone();
    }
  }
  for (at::Tensor& output : head.outputs) {
    output = normal({kMedusaVocab, kMedusaHidden}, seed++);
  }
  return head;
}

TEST(MedusaHeadTest, NewHeadsSayWhatTheTargetsHeadDoes) {
  const TransformerTensors target = unpack(*tiny_gemma(kMedusaVocab, at::kFloat));
  const MedusaHead head = new_medusa_head({.num_heads = 2, .num_layers = 3}, target, at::kFloat);
  const auto hidden = normal({4, kMedusaHidden}, 1);
  for (int64_t k = 0; k < 2; ++k) {
    EXPECT_TRUE(at::equal(medusa_hidden(head, hidden, k), hidden));
    EXPECT_TRUE(at::equal(head.outputs[static_cast<size_t>(k)], target.head));
  }
  EXPECT_FALSE(head.outputs[0].is_alias_of(target.head)) << "training must not change the target";
}

TEST(MedusaHeadTest, BlocksAreAsPublished) {
  const auto target = tiny_gemma(kMedusaVocab, at::kFloat);
  const MedusaHead head = random_head(*target, {.num_heads = 2, .num_layers = 2});
  const auto x = normal({3, kMedusaHidden}, 2);
  const auto silu = [](const at::Tensor& y) { return y / (1.0 + (-y).exp()); };
  const MedusaBlock& first = head.blocks[1][0];
  const MedusaBlock& second = head.blocks[1][1];
  const auto middle = x + silu(at::matmul(x, first.weight.t()) + first.bias);
  const auto wanted = middle + silu(at::matmul(middle, second.weight.t()) + second.bias);
  EXPECT_LT(max_difference(medusa_hidden(head, x, 1), wanted), 1e-5);
}

TEST(MedusaHeadTest, ReadsAPublishedFolder) {
  const TemporaryFolder folder;
  const auto target = tiny_gemma(kMedusaVocab, at::kFloat);
  TensorWriter writer(at::kBFloat16);
  std::map<std::string, at::Tensor> tensors;
  for (const char* head : {"0", "1"}) {
    const std::string name = head;
    tensors[name + ".0.linear.weight"] = normal({kMedusaHidden, kMedusaHidden}, 1);
    tensors[name + ".0.linear.bias"] = normal({kMedusaHidden, kMedusaHidden}, 2)[0].clone();
    tensors[name + ".1.weight"] = normal({kMedusaVocab, kMedusaHidden}, 3);
  }
  for (const auto& [name, tensor] : tensors) {
    writer.add(name, tensor);
  }
  writer.write(folder.path() / "medusa_lm_head.safetensors");
  folder.write("config.json",
               R"({"medusa_num_heads": 2, "medusa_num_layers": 1,
                   "base_model_name_or_path": "somewhere/gemma", "transformers_version": "4.34.1"})");
  const MedusaHead head = load_medusa_head(folder.path(), *target);
  EXPECT_EQ(head.config.hidden_size, kMedusaHidden);
  EXPECT_EQ(head.config.vocab_size, kMedusaVocab);
  ASSERT_EQ(head.outputs.size(), 2U);
  EXPECT_TRUE(at::equal(head.outputs[1], tensors["1.1.weight"].to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(head.blocks[0][0].bias, tensors["0.0.linear.bias"].to(at::kBFloat16)));
  EXPECT_EQ(load_medusa_head(folder.path(), *tiny_gemma(kMedusaVocab)).outputs[0].scalar_type(),
            at::kDouble);
  copy_pickled(folder.path() / "medusa_lm_head.safetensors", folder.path() / "medusa_lm_head.pt");
  std::filesystem::remove(folder.path() / "medusa_lm_head.safetensors");
  EXPECT_EQ(load_medusa_head(folder.path(), *target).fingerprint, head.fingerprint);
}

TEST(MedusaHeadTest, SavesWhatItLoads) {
  const auto target = tiny_gemma(kMedusaVocab, at::kFloat);
  for (const bool shared : {false, true}) {
    const TemporaryFolder folder;
    const MedusaHead head =
        random_head(*target, {.num_heads = 3, .num_layers = 2, .share_lm_head = shared});
    save_medusa_head(head, folder.path(), at::kFloat);
    const MedusaHead again = load_medusa_head(folder.path(), *target);
    EXPECT_EQ(again.config.num_layers, 2);
    EXPECT_EQ(again.config.share_lm_head, shared);
    ASSERT_EQ(again.outputs.size(), shared ? 0U : 3U);
    const auto x = normal({2, kMedusaHidden}, 9);
    for (int64_t k = 0; k < 3; ++k) {
      EXPECT_TRUE(at::equal(medusa_hidden(head, x, k), medusa_hidden(again, x, k)));
      EXPECT_TRUE(shared || at::equal(head.outputs[static_cast<size_t>(k)],
                                      again.outputs[static_cast<size_t>(k)]));
    }
  }
}

TEST(MedusaHeadTest, ADraftVocabularyUsesRowsOfTheTargetsHead) {
  const auto target = tiny_gemma(kMedusaVocab, at::kFloat);
  const TemporaryFolder folder;
  MedusaHead head = random_head(
      *target, {.num_heads = 2, .num_layers = 1, .share_lm_head = true, .draft_vocab_size = 4});
  head.target_ids = at::tensor({1, 4, 6, 10}, at::kLong);
  save_medusa_head(head, folder.path(), at::kFloat);
  const MedusaHead again = load_medusa_head(folder.path(), *target);
  ASSERT_TRUE(at::equal(again.target_ids, head.target_ids));
  const MedusaModel model(again, target);
  const auto x = normal({2, kMedusaHidden}, 9);
  const auto wanted = reference_head(unpack(*target), medusa_hidden(head, x, 1));
  EXPECT_LT(max_difference(model.logits(x, 1).logits, wanted.index_select(1, head.target_ids)),
            1e-5);
  EXPECT_EQ(model.vocabulary()->columns(), 4);
}

class BadMedusaTest : public testing::Test {
 protected:
  void SetUp() override {
    save_medusa_head(random_head(*target_, {.num_heads = 2}), folder_.path(), at::kFloat);
  }

  /// The complaint about config.json with keys replaced.
  std::string complaint(const json& changes, const TransformerWeights& target) const {
    std::ifstream stream(folder_.path() / "config.json");
    json config = json::parse(stream);
    config.update(changes);
    std::ofstream(folder_.path() / "config.json") << config.dump();
    return error_message<WeightsError>([&] { load_medusa_head(folder_.path(), target); });
  }

  TemporaryFolder folder_;
  std::shared_ptr<TransformerWeights> target_ = tiny_gemma(kMedusaVocab, at::kFloat);
};

TEST_F(BadMedusaTest, SaysThatTheTargetHasOtherWeights) {
  TransformerWeights other = *target_;
  other.fingerprint = other.weights_fingerprint = "0123456789abcdef";
  EXPECT_THAT(load_medusa_head(folder_.path(), other).note,
              AllOf(HasSubstr("other weights"), HasSubstr("0123456789abcdef")));
  EXPECT_EQ(load_medusa_head(folder_.path(), *target_).note, "");
}

TEST_F(BadMedusaTest, RefusesATargetOfAnotherShape) {
  EXPECT_THAT(complaint(json::object(), *tiny_gemma(kMedusaVocab + 1, at::kFloat)),
              HasSubstr("vocabulary"));
  EXPECT_THAT(complaint({{"hidden_size", 32}}, *target_), HasSubstr("hidden size"));
}

TEST_F(BadMedusaTest, RefusesAnotherKindOfHead) {
  EXPECT_THAT(complaint({{"head_type", "eagle"}}, *target_), HasSubstr("drafter type eagle"));
}

TEST_F(BadMedusaTest, RefusesTensorsThatDoNotFit) {
  EXPECT_THAT(complaint({{"medusa_num_heads", 3}}, *target_), HasSubstr("2.0.linear.weight"));
  EXPECT_THAT(complaint({{"medusa_num_heads", 1}}, *target_), HasSubstr("1."));
  EXPECT_THAT(complaint({{"medusa_num_heads", 2}, {"share_lm_head", true}}, *target_),
              HasSubstr(".1.weight"));
  EXPECT_THAT(complaint({{"medusa_num_heads", 0}}, *target_), HasSubstr("medusa_num_heads"));
  EXPECT_THAT(complaint({{"medusa_num_heads", 65}}, *target_), HasSubstr("more than 64"));
}

TEST_F(BadMedusaTest, RefusesADraftVocabularyWithItsOwnMatrices) {
  EXPECT_THAT(complaint({{"draft_vocab_size", 4}}, *target_), HasSubstr("share_lm_head"));
}

TEST_F(BadMedusaTest, RefusesAMissingFolder) {
  EXPECT_THAT(
      error_message<WeightsError>([&] { load_medusa_head(folder_.path() / "nothing", *target_); }),
      HasSubstr("no such folder"));
}

}  // namespace
}  // namespace specdec
