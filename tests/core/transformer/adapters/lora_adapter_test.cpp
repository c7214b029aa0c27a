#include "core/transformer/adapters/lora_adapter.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/adapters/lora_modules.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/lora_folder.h"
#include "tests/support/pickled_file.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kConfig = R"("r": 2, "lora_alpha": 4, "target_modules": ["o_proj"])";

class LoraAdapterTest : public testing::Test {
 protected:
  /// Matrices of the output projections of all layers.
  std::vector<LoraMatrices> outputs() const {
    std::vector<LoraMatrices> all;
    for (size_t i = 0; i < base_->layers.size(); ++i) {
      const Linear& output = base_->layers[i].output;
      all.push_back({"model.layers." + std::to_string(i) + ".self_attn.o_proj",
                     at::ones({2, output.in()}), at::ones({output.out(), 2})});
    }
    return all;
  }
  std::shared_ptr<const LoraAdapter> load(const std::vector<LoraMatrices>& matrices,
                                          const std::string& config = kConfig) const {
    write_lora(folder_.path() / "adapter", config, matrices);
    return load_lora(folder_.path() / "adapter", base_);
  }
  std::string complaint(const std::vector<LoraMatrices>& matrices,
                        const std::string& config = kConfig) const {
    return error_message<WeightsError>([&] { (void)load(matrices, config); });
  }

  TemporaryFolder folder_;
  std::shared_ptr<const TransformerWeights> base_ = load_model(test_data("gemma3-a"));
};

TEST_F(LoraAdapterTest, EachModuleIsAPairOfItsMatrix) {
  const auto adapter = load(outputs());
  ASSERT_EQ(adapter->pairs.size(), base_->layers.size());
  const LoraPair& pair = adapter->pairs.front();
  EXPECT_EQ(pair.matrix, &base_->layers.front().output);
  EXPECT_EQ(pair.first, 0);
  EXPECT_TRUE(at::equal(pair.b, at::full_like(pair.b, 2.0))) << "alpha / r should be in it";
}

TEST_F(LoraAdapterTest, FusedMatricesHaveTheirModulesRows) {
  const LayerPlan& plan = base_->plan.front();
  std::vector<int64_t> first;
  for (const LoraModule& module : lora_modules(*base_)) {
    if (module.layer == 0) {
      first.push_back(module.first);
    }
  }
  EXPECT_EQ(first, (std::vector<int64_t>{0, query_rows(plan), query_rows(plan) + kv_rows(plan), 0,
                                         0, plan.intermediate_size, 0}));
}

TEST_F(LoraAdapterTest, PathsMayLieInAWrapper) {
  for (const char* path :
       {"model.layers.1.mlp.up_proj", "model.language_model.layers.1.mlp.up_proj",
        "language_model.model.layers.1.mlp.up_proj", "layers.1.mlp.up_proj"}) {
    EXPECT_EQ(lora_module_name(path), "model.layers.1.mlp.up_proj") << path;
  }
  EXPECT_EQ(lora_module_name("language_model.lm_head"), "lm_head");
  auto matrices = outputs();
  for (LoraMatrices& one : matrices) {
    one.path = "model.language_model." + one.path.substr(std::string("model.").size());
  }
  matrices.push_back({"model.vision_tower.layers.0.self_attn.o_proj", at::ones({2, 3}), {}});
  EXPECT_EQ(load(matrices)->pairs.size(), base_->layers.size());
}

TEST_F(LoraAdapterTest, TheFingerprintSaysMatricesAndFactors) {
  const std::string first = load(outputs())->fingerprint;
  EXPECT_EQ(load(outputs())->fingerprint, first);
  EXPECT_NE(
      load(outputs(), R"("r": 2, "lora_alpha": 5, "target_modules": ["o_proj"])")->fingerprint,
      first);
  auto changed = outputs();
  changed.front().a[0][0] = 3.0;
  EXPECT_NE(load(changed)->fingerprint, first);
}

TEST_F(LoraAdapterTest, MatricesOfAnotherWidthAreNamed) {
  auto matrices = outputs();
  matrices[1].a = at::ones({2, 100});
  EXPECT_THAT(complaint(matrices, std::string(kConfig) + R"(, "base_model_name_or_path": "big")"),
              AllOf(HasSubstr("layers.1.self_attn.o_proj.lora_A.weight is [2, 100]"),
                    HasSubstr("should be [2, 96]"), HasSubstr("trained on 'big'")));
}

TEST_F(LoraAdapterTest, UnknownModulesAreNamed) {
  auto matrices = outputs();
  matrices.push_back({"model.layers.99.self_attn.o_proj", at::ones({2, 96}), at::ones({64, 2})});
  EXPECT_THAT(complaint(matrices), AllOf(HasSubstr("model.layers.99.self_attn.o_proj"),
                                         HasSubstr("does not have"), HasSubstr("6 layers")));
}

TEST_F(LoraAdapterTest, MissingMatricesAreNamed) {
  auto matrices = outputs();
  matrices[2].b = at::Tensor();
  EXPECT_THAT(complaint(matrices), HasSubstr("only one of the matrices lora_A and lora_B of "
                                             "model.layers.2.self_attn.o_proj"));
  matrices.erase(matrices.begin() + 2);
  EXPECT_THAT(complaint(matrices),
              HasSubstr("the matrices lora_A and lora_B of model.layers.2.self_attn.o_proj are "
                        "missing"));
  EXPECT_THAT(complaint({}), HasSubstr("no matrices lora_A and lora_B"));
}

TEST_F(LoraAdapterTest, ModulesThatTheConfigLeavesOutAreNamed) {
  EXPECT_THAT(complaint(outputs(), R"("r": 2, "lora_alpha": 4, "target_modules": ["q_proj"])"),
              HasSubstr("do not belong together"));
}

TEST_F(LoraAdapterTest, EmbeddingsAndOtherTensorsAreRefused) {
  auto matrices = outputs();
  write_lora(folder_.path() / "other", kConfig, matrices);
  const auto refused = [&](const std::string& name) {
    const at::Tensor value = at::ones({1});
    const auto* data = static_cast<const std::byte*>(value.const_data_ptr());
    write_safetensors(folder_.path() / "other" / "adapter_model.safetensors",
                      std::vector<TensorToWrite>{{name, DType::kF32, {1}, {data, 4}}});
    return error_message<WeightsError>([&] { (void)load_lora(folder_.path() / "other", base_); });
  };
  EXPECT_THAT(refused("base_model.model.model.embed_tokens.lora_embedding_A"),
              HasSubstr("adapters of the embedding"));
  EXPECT_THAT(refused("base_model.model.model.norm.weight"), HasSubstr("would be left out"));
}

TEST_F(LoraAdapterTest, FoldersOfAnotherKindAreRefused) {
  EXPECT_THAT(error_message<WeightsError>([&] { (void)load_lora(test_data("gemma3-a"), base_); }),
              HasSubstr("no adapter_config.json"));
  write_lora(folder_.path() / "old", kConfig, outputs());
  const auto file = folder_.path() / "old" / "adapter_model.safetensors";
  const auto before = load_lora(folder_.path() / "old", base_);
  copy_pickled(file, folder_.path() / "old" / "adapter_model.bin");
  std::filesystem::remove(file);
  const auto pickled = load_lora(folder_.path() / "old", base_);
  EXPECT_EQ(pickled->fingerprint, before->fingerprint);
  std::filesystem::remove(folder_.path() / "old" / "adapter_model.bin");
  EXPECT_THAT(error_message<WeightsError>([&] { (void)load_lora(folder_.path() / "old", base_); }),
              AllOf(HasSubstr("adapter_model.safetensors"), HasSubstr("adapter_model.bin")));
}

}  // namespace
}  // namespace specdec
