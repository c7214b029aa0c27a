// How many threads a forward of TransformerModel computes with.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/error.h"
#include "core/kernels/threads_during.h"
#include "core/prefill_size.h"
#include "core/transformer/layer_hook.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

/// Notes the threads of each forward's first layer.
class ThreadNoter final : public LayerHook {
 public:
  std::string fingerprint() const override { return ""; }
  void run(LayerPass& pass) override {
    if (pass.layer() == 0) {
      seen.push_back(at::get_num_threads());
    }
    pass.evaluate();
  }

  std::vector<int64_t> seen;
};

class PrefillThreadsTest : public testing::Test {
 protected:
  ~PrefillThreadsTest() override { at::set_num_threads(before_); }

  int before_ = at::get_num_threads();
  std::shared_ptr<const TransformerWeights> weights_ = tiny_gemma(11);
  std::vector<Token> prompt_ = std::vector<Token>(static_cast<size_t>(kFewestPrefillTokens), 3);
};

TEST_F(PrefillThreadsTest, AreThoseOfPromptsAlone) {
  at::set_num_threads(1);
  const auto noter = std::make_shared<ThreadNoter>();
  TransformerModel model(weights_, paged_kv(), {.prefill_threads = 2, .hooks = {noter}});
  model.prefill_get_last_logits(prompt_);
  EXPECT_EQ(at::get_num_threads(), 1);
  const Token next = 5;
  model.decode_get_logits({&next, 1});
  model.prefill_get_last_logits(TokenSpan(prompt_).first(prompt_.size() - 1));
  EXPECT_EQ(noter->seen, (std::vector<int64_t>{2, 1, 1}));

  TransformerModel plain(weights_, paged_kv(), {.hooks = {noter}});
  plain.prefill_get_last_logits(prompt_);
  EXPECT_EQ(noter->seen.back(), 1);  // none were asked for
}

TEST_F(PrefillThreadsTest, ChangeNoBit) {
  at::set_num_threads(1);
  TransformerModel plain(weights_, paged_kv());
  TransformerModel threaded(weights_, paged_kv(), {.prefill_threads = 2});
  EXPECT_TRUE(
      at::equal(plain.prefill_get_last_logits(prompt_), threaded.prefill_get_last_logits(prompt_)));
}

TEST_F(PrefillThreadsTest, AForwardThatFailsLeavesThemAsTheyWere) {
  at::set_num_threads(1);
  TransformerModel model(weights_, paged_kv(), {.max_length = 8, .prefill_threads = 2});
  EXPECT_ANY_THROW(model.forward({.tokens = token_tensor(prompt_)}));
  EXPECT_EQ(at::get_num_threads(), 1);
}

}  // namespace
}  // namespace specdec
