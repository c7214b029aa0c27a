// A thousand requests whose texts overlap, read through a store that has room for few of them,
// against the same read from their first token: results bit by bit, for each kind of cache.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

#include "core/prefix_store.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using RequestTokens = std::vector<Token>;

constexpr int64_t kRequestVocab = 24;
constexpr int64_t kRequestLength = 64;

struct RequestsCase {
  std::string name;
  int64_t page_size = 4;
  KvFormat format = KvFormat::kNative;
  int64_t max_pages = 0;
  int64_t window_slack = 0;
  ForwardOptions options = {.logits = Logits::kLast};

  std::unique_ptr<TransformerModel> model() const {
    return std::make_unique<TransformerModel>(tiny_gemma(kRequestVocab, at::kFloat),
                                              paged_kv(page_size, format, max_pages, window_slack),
                                              TransformerOptions{.max_length = kRequestLength});
  }
};

void PrintTo(const RequestsCase& one, std::ostream* out) { *out << one.name; }

class PrefixRequestsTest : public testing::TestWithParam<RequestsCase> {
 protected:
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  /// The beginning of one of the last prompts, or of none, and some tokens.
  RequestTokens next_prompt() {
    RequestTokens prompt;
    if (!prompts_.empty() && below(6) > 0) {
      const int64_t recent = std::min<int64_t>(std::ssize(prompts_), 8);
      prompt = prompts_[prompts_.size() - static_cast<size_t>(1 + below(recent))];
      prompt.resize(static_cast<size_t>(below(std::ssize(prompt) + 1)));
    }
    for (int64_t more = 1 + below(12); more > 0; --more) {
      prompt.push_back(static_cast<Token>(below(kRequestVocab)));
    }
    prompt.resize(std::min<size_t>(prompt.size(), kRequestLength - 8));
    prompts_.push_back(prompt);
    return prompt;
  }

  std::mt19937_64 random_{11};
  std::vector<RequestTokens> prompts_;
};

void expect_same(const ForwardResult& result, const ForwardResult& wanted) {
  ASSERT_TRUE(at::equal(result.logits, wanted.logits));
  ASSERT_EQ(result.final_hidden.defined(), wanted.final_hidden.defined());
  ASSERT_TRUE(!wanted.final_hidden.defined() ||
              at::equal(result.final_hidden, wanted.final_hidden));
  ASSERT_EQ(result.captured.size(), wanted.captured.size());
  for (size_t layer = 0; layer < wanted.captured.size(); ++layer) {
    ASSERT_TRUE(at::equal(result.captured[layer], wanted.captured[layer]));
  }
}

TEST_P(PrefixRequestsTest, AThousandOverlappingOnesHaveTheBitsOfColdOnes) {
  const c10::InferenceMode guard;
  at::set_num_threads(1);
  const auto model = GetParam().model();
  const auto cold = GetParam().model();
  const ForwardOptions& options = GetParam().options;
  (void)cold->prefill(RequestTokens(kRequestLength - 8, 1), options);
  const int64_t budget =
      4 * cached_prefix(*cold, RequestTokens(kRequestLength - 8, 1)).snapshot->bytes();
  PrefixStore store(budget);
  for (int request = 0; request < 1000; ++request) {
    SCOPED_TRACE(testing::Message() << "request " << request);
    RequestTokens text = next_prompt();
    ASSERT_NO_FATAL_FAILURE(
        expect_same(store.prefill(*model, text, options), cold->prefill(text, options)));
    for (int64_t step = below(4); step > 0; --step) {
      text.push_back(static_cast<Token>(below(kRequestVocab)));
      const TokenSpan newest = TokenSpan(text).last(1);
      ASSERT_TRUE(at::equal(model->decode_get_logits(newest), cold->decode_get_logits(newest)));
    }
    store.insert(cached_prefix(*model, text));
    ASSERT_LE(store.bytes(), budget);
  }
  const PrefixStatistics counts = store.statistics();
  EXPECT_GT(counts.hits, 100);
  EXPECT_GT(counts.reused_tokens, 1000);
  EXPECT_GT(counts.evicted, 100);
  EXPECT_EQ(counts.bypassed, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Caches, PrefixRequestsTest,
    testing::Values(RequestsCase{"paged"}, RequestsCase{"large_pages", 16},
                    RequestsCase{"contiguous", kRequestLength},
                    RequestsCase{"q8", 4, KvFormat::kQ8},
                    RequestsCase{"bfloat16", 4, KvFormat::kBFloat16},
                    RequestsCase{"window_slack", 2, KvFormat::kNative, 0, 3},
                    RequestsCase{"window_slack_q4", 2, KvFormat::kQ4, 0, 2},
                    RequestsCase{"full_pool", 4, KvFormat::kNative, 40},
                    RequestsCase{
                        "states",
                        4,
                        KvFormat::kNative,
                        0,
                        0,
                        {.capture_layers = {1}, .logits = Logits::kLast, .hidden = Hidden::kAll}}),
    [](const testing::TestParamInfo<RequestsCase>& info) { return info.param.name; });

}  // namespace
}  // namespace specdec
