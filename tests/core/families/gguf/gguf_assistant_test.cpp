// Gemma 4's assistant from GGUF files: against its golden steps, and against the same folder.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "core/error.h"
#include "core/families/gemma/assistant.h"
#include "core/families/gguf/gguf_tensors.h"
#include "core/families/model.h"
#include "core/formats/gguf/gguf_writer.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// A target with a prompt, and an assistant's first step after it.
class AssistantSteps {
 public:
  explicit AssistantSteps(const std::string& target)
      : weights_(load_model(test_data(target), {.dtype = at::kFloat})),
        model_(weights_, paged_kv()) {}

  const TransformerWeights& weights() const { return *weights_; }
  void prefill(const std::vector<Token>& tokens) {
    model_.prefill(tokens, {.logits = Logits::kNone});
  }
  AssistantModel::Step step(AssistantModel& assistant, Token token, const Tensor& hidden) const {
    const Internals& internals = *model_.internals();
    return assistant.step(internals.embed(at::tensor({token}, at::kInt)), hidden, internals, 0);
  }

 private:
  std::shared_ptr<const TransformerWeights> weights_;
  TransformerModel model_;
};

class GgufAssistantGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GgufAssistantGoldenTest, EveryStepMatches) {
  const std::filesystem::path file = golden_gguf(GetParam());
  const Golden golden(file.parent_path() / (GetParam() + ".golden.safetensors"), Golden::File{});
  const bool ordered = GetParam().find("ordered") != std::string::npos;
  AssistantSteps target(ordered ? "gemma4-e-a" : "gemma4-dense-a");
  for (const std::string prefix : {"", "short_"}) {
    target.prefill(golden.tokens(prefix + "tokens"));
    AssistantModel assistant(load_assistant(file, target.weights()).head, {});
    Token token = golden.tokens(prefix + "first_token").front();
    Tensor hidden = golden.tensor(prefix + "target_hidden").unsqueeze(0);
    const std::vector<Token> wanted = golden.tokens(prefix + "draft_tokens");
    const Tensor logits = golden.tensor(prefix + "draft_logits");
    const Tensor states = golden.tensor(prefix + "draft_hidden");
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const AssistantModel::Step step = target.step(assistant, token, hidden);
      EXPECT_LE(max_difference(step.logits[0], logits[row]), 2e-4) << prefix << i;
      EXPECT_LE(max_difference(step.hidden[0], states[row]), 5e-4) << prefix << i;
      token = static_cast<Token>(step.logits[0].argmax().item<int64_t>());
      EXPECT_EQ(token, wanted[i]) << prefix << i;
      hidden = states.narrow(0, row, 1).contiguous();  // so that errors do not add up
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufAssistantGoldenTest,
                         testing::ValuesIn(found_golden_gguf(
                             {"gemma4-assistant-f32", "gemma4-assistant-q8_0",
                              "gemma4-assistant-q4_k", "gemma4-assistant-ordered-f32",
                              "gemma4-assistant-ordered-q8_0", "gemma4-assistant-ordered-q4_k"})),
                         ParameterName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GgufAssistantGoldenTest);

/// What a converter writes of the ordered golden assistant, whose clusters it drops.
class GgufAssistantTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::function<void(GgufEntries&)>& change = [](auto&) {}) {
    GgufEntries entries = {{"general.architecture", std::string("gemma4-assistant")},
                           {"tokenizer.ggml.bos_token_id", int64_t{2}},
                           {"tokenizer.ggml.eos_token_id", int64_t{1}}};
    const auto add = [&entries](const char* key, const GgufEntry& value) {
      entries.emplace_back(std::string("gemma4-assistant.") + key, value);
    };
    for (const auto& [key, value] : {std::pair{"block_count", 4},
                                     {"context_length", 512},
                                     {"embedding_length", 32},
                                     {"embedding_length_out", 48},
                                     {"feed_forward_length", 64},
                                     {"attention.head_count", 4},
                                     {"attention.head_count_kv", 1},
                                     {"attention.key_length", 32},
                                     {"attention.value_length", 32},
                                     {"attention.key_length_swa", 16},
                                     {"attention.value_length_swa", 16},
                                     {"attention.sliding_window", 6},
                                     {"attention.shared_kv_layers", 4},
                                     {"embedding_length_per_layer_input", 0},
                                     {"nextn_predict_layers", 4}}) {
      add(key, int64_t{value});
    }
    add("attention.layer_norm_rms_epsilon", 1e-6);
    add("rope.freq_base", 1e6);
    add("rope.freq_base_swa", 1e4);
    add("attention.sliding_window_pattern", std::vector<bool>{true, true, true, false});
    change(entries);
    return write_file(entries);
  }

  std::string complaint(const std::filesystem::path& file, const std::string& target) const {
    return error_message<WeightsError>(
        [&] { (void)load_assistant(file, *load_model(test_data(target))); });
  }

  const Golden golden_{"gemma4-assistant-ordered-a"};

 private:
  std::filesystem::path write_file(const GgufEntries& entries) {
    const CheckpointTensors checkpoint(golden_.folder());
    std::vector<TensorLayout> layouts;
    std::vector<std::span<const std::byte>> bytes;
    std::array<float, 16> turned;
    turned.fill(1e30F);
    std::fill_n(turned.begin(), 4, 1.0F);
    layouts.push_back({"rope_freqs.weight", DType::kF32, {16}});
    bytes.push_back(std::as_bytes(std::span(turned)));
    for (const TensorEntry* entry : checkpoint.tensors()) {
      if (entry->name.rfind("masked_embedding", 0) != 0) {
        layouts.push_back({gguf_name(entry->name, true), entry->dtype, entry->shape});
        bytes.push_back(entry->bytes);
      }
    }
    const std::filesystem::path path = folder_.path() / "assistant.gguf";
    GgufFileWriter writer(path, entries, layouts);
    for (const auto& part : bytes) {
      writer.write(part);
    }
    writer.commit();
    return path;
  }

  TemporaryFolder folder_;
};

TEST_F(GgufAssistantTest, GivesTheFoldersLogitsWithADenseHead) {
  AssistantSteps target("gemma4-e-a");
  target.prefill(golden_.tokens("tokens"));
  const auto dense =
      std::make_shared<AssistantHead>(*load_assistant(golden_.folder(), target.weights()).head);
  dense->ordered = {};
  AssistantModel folder(dense, {});
  AssistantModel file(load_assistant(write(), target.weights()).head, {});
  const Tensor hidden = golden_.tensor("target_hidden").unsqueeze(0);
  const AssistantModel::Step wanted = target.step(folder, 7, hidden);
  const AssistantModel::Step found = target.step(file, 7, hidden);
  EXPECT_TRUE(at::equal(found.logits, wanted.logits));
  EXPECT_TRUE(at::equal(found.hidden, wanted.hidden));
}

TEST_F(GgufAssistantTest, AWrongTargetIsNamedByTheKey) {
  EXPECT_THAT(complaint(write(), "gemma3-a"),
              HasSubstr("'token_embd.weight' says that the target has a vocabulary of 352, but"));
  const auto with = [this](const char* key, int64_t value) {
    return write([&](GgufEntries& entries) {
      for (auto& [name, old] : entries) {
        old = name == std::string("gemma4-assistant.") + key ? GgufEntry(value) : old;
      }
    });
  };
  EXPECT_THAT(complaint(with("embedding_length_out", 50), "gemma4-e-a"),
              HasSubstr("'gemma4-assistant.embedding_length_out' is 50, but the target has a "
                        "hidden size of 48"));
  EXPECT_THAT(complaint(with("attention.head_count_kv", 2), "gemma4-e-a"),
              HasSubstr("'gemma4-assistant.attention.head_count_kv' makes layer 0 read 2 key/value "
                        "heads of 16, but the target's layer"));
  EXPECT_THAT(complaint(with("attention.shared_kv_layers", 2), "gemma4-e-a"),
              HasSubstr("'gemma4-assistant.attention.shared_kv_layers' is 2, of 4 layers"));
  EXPECT_THAT(complaint(with("feed_forward_length", 65), "gemma4-e-a"),
              HasSubstr("blk.0.ffn_gate.weight"));
}

TEST_F(GgufAssistantTest, OtherFilesAreNoAssistants) {
  EXPECT_THAT(complaint(golden_gguf("gemma3-mixed"), "gemma4-e-a"),
              HasSubstr("'general.architecture' is 'gemma3'; an assistant's is gemma4-assistant"));
  EXPECT_THAT(error_message<WeightsError>([&] { (void)load_model(write()); }),
              HasSubstr("drafter: {type: gemma4_assistant, weights: FOLDER or GGUF file}"));
}

}  // namespace
}  // namespace specdec
