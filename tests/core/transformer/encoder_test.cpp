#include "core/transformer/encoder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/families/gemma/weights.h"
#include "core/families/model.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/reference.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/max_difference.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kEncoderVocab = 40;

/// tiny_gemma with attention to both sides: a token sees five on each.
std::shared_ptr<TransformerWeights> tiny_encoder(at::ScalarType dtype) {
  auto weights = tiny_gemma(kEncoderVocab, dtype);
  weights->config.bidirectional = true;
  return weights;
}

std::vector<Token> numbered_tokens(int64_t length, int64_t step) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<Token>((i * step + 3) % kEncoderVocab));
  }
  return tokens;
}

TokenBatch batch_of_texts(const std::vector<std::vector<Token>>& texts) {
  std::vector<Token> tokens;
  TokenBatch batch;
  for (size_t row = 0; row < texts.size(); ++row) {
    tokens.insert(tokens.end(), texts[row].begin(), texts[row].end());
    batch.rows.insert(batch.rows.end(), texts[row].size(), static_cast<int64_t>(row));
  }
  batch.tokens = token_tensor(tokens);
  return batch;
}

Tensor expected_states(const TransformerWeights& weights, const std::vector<Token>& tokens) {
  const Tensor ids = at::tensor(tokens, at::kInt).to(at::kLong);
  return reference_forward(unpack(weights), ids.unsqueeze(0)).hidden[0];
}

class EncoderTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  std::shared_ptr<TransformerWeights> weights_ = tiny_encoder(GetParam());
  Encoder encoder_{weights_, paged_kv(), {.max_length = 300}};
  double tolerance_ = GetParam() == at::kDouble ? 1e-12 : 2e-5;
};

TEST_P(EncoderTest, EqualsTheReferenceAtEveryLength) {
  // Within the window, beyond it, and beyond a chunk of the kernel with windows that end in it.
  for (const int64_t length : {1, 2, 5, 6, 7, 16, 40, 300}) {
    const auto tokens = numbered_tokens(length, 7);
    const Tensor states = encoder_.forward(batch_of_texts({tokens}));
    EXPECT_LE(max_difference(states, expected_states(*weights_, tokens)), tolerance_) << length;
  }
}

TEST_P(EncoderTest, ABatchGivesTheBitsOfItsTextsAlone) {
  const std::vector<std::vector<Token>> texts = {numbered_tokens(3, 5), numbered_tokens(30, 7),
                                                 numbered_tokens(1, 1), numbered_tokens(17, 11)};
  const Tensor together = encoder_.forward(batch_of_texts(texts));
  int64_t begin = 0;
  for (const std::vector<Token>& text : texts) {
    const auto length = static_cast<int64_t>(text.size());
    EXPECT_TRUE(
        at::equal(together.narrow(0, begin, length), encoder_.forward(batch_of_texts({text}))));
    begin += length;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, EncoderTest, testing::Values(at::kFloat, at::kDouble));

TEST(EncoderErrorTest, TextsThatDoNotFitAreRefusedAndLeaveItUsable) {
  const auto weights = tiny_encoder(at::kFloat);
  Encoder encoder(weights, paged_kv(), {.max_length = 8});
  EXPECT_EQ(encoder.max_length(), 8);
  const auto tokens = numbered_tokens(8, 3);
  const Tensor before = encoder.forward(batch_of_texts({tokens}));
  EXPECT_THROW(encoder.forward(batch_of_texts({tokens, numbered_tokens(9, 3)})), Error);
  EXPECT_THAT(
      error_message<Error>([&] { (void)encoder.forward(batch_of_texts({{kEncoderVocab}})); }),
      HasSubstr("outside the model's vocabulary of 40"));
  EXPECT_TRUE(at::equal(before, encoder.forward(batch_of_texts({tokens}))));
}

TEST(EncoderErrorTest, DecodersAreRefused) {
  EXPECT_THROW((Encoder{tiny_gemma(kEncoderVocab), paged_kv()}), InternalError);
}

TEST(EncoderErrorTest, DecodingNamesTheCommandForEncoders) {
  EXPECT_THAT(error_message<Error>([] {
                TransformerModel{tiny_encoder(at::kFloat), paged_kv()};
              }),
              HasSubstr("'specdec embed'"));
}

}  // namespace
}  // namespace specdec
