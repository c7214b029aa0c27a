#include "core/transformer/heads/mtp_head.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/heads/head_reference.h"
#include "core/transformer/tensor_writer.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class MtpHeadTest : public testing::Test {
 protected:
  MtpHeadTest() {
    save_gemma(unpack(*tiny_gemma(11, at::kFloat)), folder_.path(), at::kFloat);
    target_ = load_model(folder_.path());
  }

  /// Model and modules in one file, as Qwen3-Next has them.
  void join_files() const {
    TensorWriter writer(at::kFloat);
    for (const char* name : {"model.safetensors", "mtp.safetensors"}) {
      const SafetensorsFile file(folder_.path() / name);
      for (const TensorEntry& entry : file.tensors()) {
        auto* data = const_cast<std::byte*>(entry.bytes.data());
        writer.add(entry.name, at::from_blob(data, entry.shape, at::kFloat).clone());
      }
    }
    fs::remove(folder_.path() / "mtp.safetensors");
    writer.write(folder_.path() / "model.safetensors");
  }

  std::string load_error(const TransformerWeights& target) const {
    return error_message<WeightsError>([&] { load_mtp_head(folder_.path(), target); });
  }

  TemporaryFolder folder_;
  std::shared_ptr<const TransformerWeights> target_;
};

TEST_F(MtpHeadTest, ModulesAreReadFromTheCheckpointOrAFileBesideIt) {
  const auto head = random_mtp_head(*target_, 2, {.seed = 4});
  EXPECT_EQ(head->layers[0].plan.window, 0);
  EXPECT_FALSE(has_mtp(folder_.path()));
  save_mtp_head(*head, *target_, folder_.path(), at::kFloat);
  for (const bool joined : {false, true}) {
    if (joined) {
      join_files();
    }
    EXPECT_TRUE(has_mtp(folder_.path()));
    const auto again = load_mtp_head(folder_.path(), *target_);
    ASSERT_EQ(again->layers.size(), 2U);
    const Tensor tokens = at::arange(1, 9, at::kLong).unsqueeze(0);
    const HeadInputs inputs{.tokens = tokens,
                            .features = reference_forward(unpack(*target_), tokens).hidden};
    for (const size_t module : {0, 1}) {
      EXPECT_LE(max_difference(mtp_reference(*head, unpack(*target_), module, inputs).logits,
                               mtp_reference(*again, unpack(*target_), module, inputs).logits),
                1e-5);
    }
    // The target's own weights are the same with and without modules.
    EXPECT_EQ(load_model(folder_.path())->fingerprint, target_->fingerprint);
  }
}

TEST_F(MtpHeadTest, MistakesAreNamed) {
  EXPECT_THAT(load_error(*target_), HasSubstr("no multi-token-prediction modules"));
  auto head = random_mtp_head(*target_, 1);
  save_mtp_head(*head, *target_, folder_.path(), at::kFloat);
  EXPECT_EQ(load_mtp_head(folder_.path(), *target_)->note, "");
  const auto other = tiny_gemma(11, at::kFloat, 9);
  EXPECT_THAT(load_mtp_head(folder_.path(), *other)->note,
              AllOf(HasSubstr("random-9"), HasSubstr(target_->fingerprint)));
  head->fc = head->fc.narrow(1, 0, 16);
  save_mtp_head(*head, *target_, folder_.path(), at::kFloat);
  EXPECT_THAT(load_error(*target_), AllOf(HasSubstr("mtp.fc.weight"), HasSubstr("[16, 32]")));
  TensorWriter writer(at::kFloat);
  writer.add("mtp.layers.0.surprise", head->norm);
  writer.write(folder_.path() / "mtp.safetensors");
  EXPECT_THAT(load_error(*target_), HasSubstr("missing"));
}

TEST(MtpHeadOnGemma4Test, ItsLayersAreThePlainOnesOfTheTarget) {
  for (const char* kind : {"dense", "e", "moe", "3n"}) {
    const auto target = tiny_gemma4(kind, 12, at::kFloat);
    const auto head = random_mtp_head(*target, 1);
    EXPECT_TRUE(is_plain(head->layers[0].plan)) << kind;
    const TemporaryFolder folder;
    save_mtp_head(*head, *target, folder.path(), at::kFloat);
    const auto model = make_mtp_model(load_mtp_head(folder.path(), *target), 0, target, paged_kv());
    TokenBatch batch{.tokens = at::arange(5, at::kInt)};
    batch.inputs.features = at::randn({5, 16});
    EXPECT_TRUE(model->forward(batch).logits.isfinite().all().item<bool>()) << kind;
  }
}

}  // namespace
}  // namespace specdec
