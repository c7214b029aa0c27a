#include "core/transformer/heads/assistant_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/families/gemma/assistant.h"
#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

struct AssistantCase {
  std::string assistant, target;
};

void PrintTo(const AssistantCase& one, std::ostream* out) { *out << one.assistant; }

/// A round of drafting from a context: the reference's steps.
struct Round {
  std::vector<Token> context;
  Token first;
  Tensor target_hidden, logits, hidden;
  std::vector<Token> tokens;
};

class AssistantGoldenTest : public testing::TestWithParam<AssistantCase> {
 protected:
  Round round(const std::string& prefix) const {
    return {golden_.tokens(prefix + "tokens"),
            golden_.tokens(prefix + "first_token").front(),
            golden_.tensor(prefix + "target_hidden").unsqueeze(0),
            golden_.tensor(prefix + "draft_logits"),
            golden_.tensor(prefix + "draft_hidden"),
            golden_.tokens(prefix + "draft_tokens")};
  }

  void expect_round(const Round& wanted) {
    const ForwardResult prefill =
        target_.prefill(wanted.context, {.logits = Logits::kLast, .hidden = Hidden::kScored});
    const int64_t last = prefill.final_hidden.size(0) - 1;
    ASSERT_LE(max_difference(prefill.final_hidden[last], wanted.target_hidden[0]), 1e-4);
    const Internals& internals = *target_.internals();
    AssistantModel model(loaded_.head, {});
    Token token = wanted.first;
    Tensor own = prefill.final_hidden.narrow(0, last, 1);
    Tensor before = own;  // the reference's, so that its steps' errors do not add up
    for (size_t i = 0; i < wanted.tokens.size(); ++i) {
      const Tensor embedding = internals.embed(at::tensor({token}, at::kInt));
      const AssistantModel::Step step = model.step(embedding, before, internals, 0);
      const auto row = static_cast<int64_t>(i);
      EXPECT_LE(max_difference(step.logits[0], wanted.logits[row]), 2e-4) << i;
      EXPECT_LE(max_difference(step.hidden[0], wanted.hidden[row]), 5e-4) << i;  // larger values
      const AssistantModel::Step free = model.step(embedding, own, internals, 0);
      token = static_cast<Token>(free.logits[0].argmax().item<int64_t>());
      EXPECT_EQ(token, wanted.tokens[i]) << i;
      own = free.hidden;
      before = wanted.hidden.narrow(0, row, 1).contiguous();
    }
    EXPECT_EQ(target_.length(), std::ssize(wanted.context)) << "a draft leaves the target alone";
    EXPECT_EQ(target_.pending(), 0);
  }

  Golden golden_{GetParam().assistant};
  std::shared_ptr<const TransformerWeights> weights_ =
      load_model(test_data(GetParam().target), {.dtype = at::kFloat});
  TransformerModel target_{weights_, paged_kv()};
  LoadedAssistant loaded_ = load_assistant(golden_.folder(), *weights_);
};

TEST_P(AssistantGoldenTest, EveryStepMatches) { expect_round(round("")); }

TEST_P(AssistantGoldenTest, AContextWithinTheWindowMatches) { expect_round(round("short_")); }

TEST_P(AssistantGoldenTest, ReadsTheKeysThatTheReferenceReads) {
  target_.prefill(golden_.tokens("tokens"), {.logits = Logits::kNone});
  for (const bool sliding : {true, false}) {
    const std::string name = sliding ? "kv_sliding_" : "kv_full_";
    const auto [keys, values] =
        target_.internals()->key_values(assistant_source(weights_->plan, sliding), 0);
    EXPECT_LE(max_difference(keys, golden_.tensor(name + "k")), 1e-4) << name;
    EXPECT_LE(max_difference(values, golden_.tensor(name + "v")), 1e-4) << name;
  }
}

TEST_P(AssistantGoldenTest, AVerifiedDraftThatWasRejectedLeavesNothingBehind) {
  const Round wanted = round("");
  const Internals& internals = *target_.internals();
  AssistantModel model(loaded_.head, {});
  const auto first = [&] {
    return model
        .step(internals.embed(at::tensor({wanted.first}, at::kInt)), wanted.target_hidden,
              internals, 0)
        .logits;
  };
  target_.prefill_get_last_logits(wanted.context);
  const Tensor clean = first();
  Draft draft = Draft::root(3);
  for (int64_t i = 0; i < 20; ++i) {
    draft.add(static_cast<Token>(4 + i), i);
  }
  target_.verify_get_logits(draft);
  EXPECT_TRUE(at::equal(first(), clean)) << "pending nodes are not seen";
  target_.truncate(target_.length());
  EXPECT_TRUE(at::equal(first(), clean));
}

TEST_P(AssistantGoldenTest, NodesBesideEachOtherHaveTheirOwnBits) {
  target_.prefill_get_last_logits(golden_.tokens("tokens"));
  const Internals& internals = *target_.internals();
  AssistantModel model(loaded_.head, {});
  const Tensor tokens = at::tensor({5, 9, 30, 5, 2}, at::kInt);
  const Tensor embeddings = internals.embed(tokens);
  const Tensor hidden = golden_.tensor("draft_hidden").contiguous();
  const AssistantModel::Step beside = model.step(embeddings, hidden, internals, 0);
  for (int64_t i = 0; i < 5; ++i) {
    const AssistantModel::Step alone =
        model.step(embeddings.narrow(0, i, 1), hidden.narrow(0, i, 1), internals, 0);
    EXPECT_TRUE(at::equal(beside.logits[i], alone.logits[0])) << i;
    EXPECT_TRUE(at::equal(beside.hidden[i], alone.hidden[0])) << i;
  }
}

TEST_P(AssistantGoldenTest, SavedAndLoadedItIsTheSame) {
  TemporaryFolder folder;
  save_assistant(*loaded_.head, *weights_, folder.path(), at::kFloat);
  const LoadedAssistant again = load_assistant(folder.path(), *weights_);
  EXPECT_EQ(again.note, "");
  target_.prefill_get_last_logits(golden_.tokens("tokens"));
  const Internals& internals = *target_.internals();
  const auto logits = [&](const LoadedAssistant& loaded) {
    return AssistantModel(loaded.head, {})
        .step(internals.embed(at::tensor({7}, at::kInt)),
              golden_.tensor("target_hidden").unsqueeze(0), internals, 0)
        .logits;
  };
  EXPECT_TRUE(at::equal(logits(again), logits(loaded_)));
}

/// As transformers reads `tie_word_embeddings: false`: the head is lm_head.weight.
TEST_P(AssistantGoldenTest, AHeadOfItsOwnIsNotTheEmbedding) {
  AssistantHead untied = *loaded_.head;
  const Tensor table = untied.weights.head.unpack();
  untied.weights.config.tie_word_embeddings = false;
  untied.weights.head = pack(table.flip(0).contiguous());
  TemporaryFolder folder;
  save_assistant(untied, *weights_, folder.path(), at::kFloat);
  const LoadedAssistant again = load_assistant(folder.path(), *weights_);
  EXPECT_TRUE(at::equal(again.head->weights.head.unpack(), table.flip(0)));
  EXPECT_TRUE(at::equal(again.head->weights.embedding.unpack(), table));
  std::string config = read_file(folder.path() / "config.json");
  for (size_t at = 0;
       (at = config.find("\"tie_word_embeddings\": false", at)) != std::string::npos;) {
    config.replace(at, 28, "\"tie_word_embeddings\": true");
  }
  folder.write("config.json", config);
  const LoadedAssistant tied = load_assistant(folder.path(), *weights_);
  EXPECT_TRUE(at::equal(tied.head->weights.head.unpack(), table.flip(0)))
      << "the file counts more than its config";
}

std::vector<AssistantCase> found_cases() {
  std::vector<AssistantCase> cases = {{"gemma4-assistant-ordered-a", "gemma4-e-a"}};
  if (std::filesystem::exists(test_data("gemma4-assistant-a")) &&
      std::filesystem::exists(test_data("gemma4-dense-a"))) {
    cases.push_back({"gemma4-assistant-a", "gemma4-dense-a"});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, AssistantGoldenTest, testing::ValuesIn(found_cases()),
                         [](const auto& info) {
                           return info.index == 0 ? std::string("ordered") : std::string("dense");
                         });

class AssistantTest : public testing::Test {
 protected:
  std::string refusal(const std::string& assistant, const std::string& target) const {
    try {
      load_assistant(test_data(assistant), *load_model(test_data(target)));
    } catch (const WeightsError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(AssistantTest, ATargetOfAnotherShapeIsRefused) {
  EXPECT_NE(refusal("gemma4-assistant-ordered-a", "gemma3-a").find("a vocabulary of 352"),
            std::string::npos);
  EXPECT_NE(refusal("gemma4-e-a", "gemma4-e-a").find("model_type"), std::string::npos);
}

TEST_F(AssistantTest, OfTheChosenClustersOnlyWhenOthersGetNothing) {
  const auto weights = load_model(test_data("gemma4-e-a"), {.dtype = at::kFloat});
  const Golden golden("gemma4-assistant-ordered-a");
  TransformerModel target(weights, paged_kv());
  target.prefill_get_last_logits(golden.tokens("tokens"));
  const Internals& internals = *target.internals();
  AssistantModel model(load_assistant(golden.folder(), *weights).head,
                       {.fill = CentroidFill::kNothing});
  const Tensor logits = model
                            .step(internals.embed(at::tensor({7}, at::kInt)),
                                  golden.tensor("target_hidden").unsqueeze(0), internals, 0)
                            .logits;
  EXPECT_EQ(logits.isfinite().sum().item<int64_t>(), 6 * 352 / 32);
}

TEST_F(AssistantTest, KeysThatSlidingLayersSeeAreAnOption) {
  const auto weights = load_model(test_data("gemma4-e-a"), {.dtype = at::kFloat});
  const Golden golden("gemma4-assistant-ordered-a");
  TransformerModel target(weights, paged_kv());
  target.prefill_get_last_logits(golden.tokens("tokens"));
  const Internals& internals = *target.internals();
  const auto logits = [&](int64_t keys) {
    return AssistantModel(load_assistant(golden.folder(), *weights).head, {.sliding_keys = keys})
        .step(internals.embed(at::tensor({7}, at::kInt)),
              golden.tensor("target_hidden").unsqueeze(0), internals, 0)
        .logits;
  };
  EXPECT_TRUE(at::equal(logits(0), logits(7))) << "the window of 6, and one more";
  EXPECT_FALSE(at::equal(logits(0), logits(5)));
}

}  // namespace
}  // namespace specdec
