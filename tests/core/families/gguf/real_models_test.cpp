// Real checkpoints against the references' tokens and logits, where scripts/get_* have put them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/chat.h"
#include "core/families/model.h"
#include "core/tokenizers/special_encoder.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

/// A model that is not shipped; its tests are skipped where it is missing.
class RealModelTest : public testing::Test {
 protected:
  RealModelTest(const char* model, const char* script, const char* data)
      : file_(std::filesystem::path(SPECDEC_SOURCE_DIR) / "models" / model),
        script_(script),
        data_(data) {}

  void SetUp() override {
    if (!std::filesystem::exists(file_)) {
      GTEST_SKIP() << "no " << file_ << "; " << script_ << " fetches it";
    }
    tokenizer_ = load_tokenizer(file_);
  }
  nlohmann::json data(const char* name) const {
    return nlohmann::json::parse(read_file(test_data(data_) / name));
  }

  std::filesystem::path file_;
  std::string script_;
  std::string data_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

/// Decodes greedily as the reference did, and compares each token.
void expect_greedy(TransformerModel& model, Tensor logits, const std::vector<Token>& wanted,
                   const std::string& what) {
  for (const Token expected : wanted) {
    const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
    ASSERT_EQ(token, expected) << what;
    logits = model.decode_get_logits({&token, 1})[0];
  }
}

class SmolLm2Test : public RealModelTest {
 protected:
  SmolLm2Test()
      : RealModelTest("smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "scripts/get_smollm2", "smollm2") {
  }
};

TEST_F(SmolLm2Test, IdsEqualThoseOfTheReference) {
  const SpecialEncoder special(*tokenizer_);
  for (const auto& one : data("cases.json")["cases"]) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<Token>>();
    EXPECT_EQ(special.encode(text), ids) << text;
    EXPECT_EQ(tokenizer_->encode(text), one.value("ids_plain", ids)) << text;
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text);
  }
  for (const auto& one : data("cases.json")["dropped"]) {
    EXPECT_EQ(tokenizer_->encode(one["text"].get<std::string>()),
              one["ids"].get<std::vector<Token>>());
  }
}

TEST_F(SmolLm2Test, LogitsAndGreedyTokensEqualTheReference) {
  TransformerModel model(load_model(file_, {.dtype = at::kFloat}), paged_kv());
  for (const auto& prompt : data("reference.json")["prompts"]) {
    const auto tokens = prompt["tokens"].get<std::vector<Token>>();
    Tensor logits = model.prefill_get_last_logits(tokens);
    const auto best = prompt["top10_ids"].get<std::vector<int64_t>>();
    const auto wanted = prompt["top10_logits"].get<std::vector<float>>();
    EXPECT_LE(max_difference(logits.index_select(0, at::tensor(best)), at::tensor(wanted)), 1e-3);
    expect_greedy(model, logits, prompt["greedy"].get<std::vector<Token>>(), prompt["kind"]);
  }
}

TEST_F(SmolLm2Test, ChatsAreTheTemplates) {
  for (const auto& prompt : data("reference.json")["prompts"]) {
    if (!prompt.contains("messages")) {
      continue;
    }
    std::vector<ChatTurn> turns;
    for (const auto& message : prompt["messages"]) {
      const auto role = message["role"].get<std::string>();
      turns.push_back({role == "assistant" ? "model" : role, message["content"]});
    }
    EXPECT_EQ(encode_chat(*tokenizer_, turns), prompt["tokens"].get<std::vector<Token>>());
  }
}

class Gemma3Test : public RealModelTest {
 protected:
  Gemma3Test()
      : RealModelTest("gemma3/gemma-3-270m.Q4_K_M.gguf", "scripts/get_gemma3", "gemma270m") {}
};

TEST_F(Gemma3Test, IdsEqualThoseOfTheReference) {
  for (const auto& one : data("reference.json")["cases"]) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text), one["ids"].get<std::vector<Token>>()) << text;
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text);
  }
}

/// In float32, and with the weights in the file's blocks, whose products are those of their float32
/// values.
TEST_F(Gemma3Test, LogitsAndGreedyTokensEqualTheReference) {
  for (const auto dtype : {std::optional(at::kFloat), std::optional<at::ScalarType>()}) {
    TransformerModel model(load_model(file_, {.dtype = dtype}), paged_kv());
    for (const auto& one : data("reference.json")["cases"]) {
      const Tensor logits = model.prefill_get_last_logits(one["ids"].get<std::vector<Token>>());
      for (const auto& [token, logit] : one["top"].get<std::vector<std::pair<int64_t, float>>>()) {
        EXPECT_NEAR(logits[token].item<float>(), logit, 2e-3) << one["text"] << token;
      }
      expect_greedy(model, logits, one["greedy"].get<std::vector<Token>>(), one["text"]);
    }
  }
}

}  // namespace
}  // namespace specdec
