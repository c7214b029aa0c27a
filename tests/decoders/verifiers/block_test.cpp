#include "decoders/verifiers/block.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "core/error.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/fake_model.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

using TokenWeights = std::vector<double>;
/// The distribution of the next token after a path of drafted tokens.
using Process = std::function<TokenWeights(const std::vector<Token>& path)>;

struct Asked {
  Process target;
  Process drafter;
  int64_t vocab = 2;
  int64_t length = 2;
  std::function<bool(int64_t depth)> drawn = [](int64_t) { return true; };
};

TokenWeights weights_of(const Tensor& distribution) {
  return {distribution.const_data_ptr<double>(),
          distribution.const_data_ptr<double>() + distribution.numel()};
}

/// A chain that is drawn, or chosen where `drawn` says so.
Draft draw_chain(const Asked& asked, Randomness& random) {
  Draft draft = Draft::root(0);
  std::vector<Token> path;
  for (int64_t depth = 0; depth < asked.length; ++depth) {
    const TokenWeights distribution = asked.drafter(path);
    Token token = static_cast<Token>(argmax(distribution));
    if (asked.drawn(depth)) {
      draft.child_probs[static_cast<size_t>(depth)] = std::ssize(draft.probs);
      draft.probs.emplace_back(distribution);
      token = static_cast<Token>(random.draw(distribution));
    }
    draft.add(token, depth);
    path.push_back(token);
  }
  return draft;
}

Tensor target_probs(const Asked& asked, const Draft& draft) {
  std::vector<Tensor> distributions;
  for (int64_t node = 0; node < draft.size(); ++node) {
    distributions.push_back(at::tensor(
        asked.target({draft.tokens.begin() + 1, draft.tokens.begin() + 1 + node}), at::kDouble));
  }
  return at::stack(distributions);
}

struct BlockOutcome {
  double accepted = 0.0;                        // expected
  std::map<std::vector<Token>, double> tokens;  // distribution of the first `length` + 1 tokens
};

/// What a verifier does over all drafts; the output goes on with the target's distribution.
BlockOutcome outcome(const Asked& asked, const Verifier& verifier) {
  BlockOutcome result;
  EnumeratingRandomness random;
  do {
    const Draft draft = draw_chain(asked, random);
    const VerifyResult verified =
        verify_with(verifier, draft, target_probs(asked, draft), 1, random);
    std::vector<Token> output(draft.tokens.begin() + 1,
                              draft.tokens.begin() + static_cast<int64_t>(verified.path.size()));
    const auto accepted = static_cast<double>(output.size());
    output.push_back(verified.next);
    while (static_cast<int64_t>(output.size()) <= asked.length) {
      output.push_back(static_cast<Token>(random.draw(asked.target(output))));
    }
    result.accepted += random.probability() * accepted;
    result.tokens[output] += random.probability();
  } while (random.next_outcome());
  return result;
}

double mass_of(const Asked& asked, const std::vector<Token>& output) {
  double mass = 1.0;
  for (size_t i = 0; i < output.size(); ++i) {
    const TokenWeights distribution =
        asked.target({output.begin(), output.begin() + static_cast<int64_t>(i)});
    mass *= distribution[static_cast<size_t>(output[i])];
  }
  return mass;
}

Process random_process(int64_t vocab, uint64_t seed, double spread) {
  const LogitTable table = random_table(vocab, seed, 8, spread);
  return [=](const std::vector<Token>& path) {
    std::vector<Token> history = {0};
    history.insert(history.end(), path.begin(), path.end());
    const std::vector<double> logits = table(history);
    return weights_of(at::softmax(at::tensor(logits, at::kDouble), 0));
  };
}

std::vector<Asked> random_cases() {
  std::vector<Asked> cases;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Asked asked{random_process(2 + seed % 2, seed, 1.2),
                random_process(2 + seed % 2, seed + 50, 1.2), static_cast<int64_t>(2 + seed % 2),
                static_cast<int64_t>(1 + seed % 3)};
    if (seed % 4 == 3) {
      asked.drawn = [](int64_t depth) { return depth != 1; };
    }
    cases.push_back(std::move(asked));
  }
  return cases;
}

TEST(BlockTest, ThePapersExampleAcceptsElevenNinths) {
  const Asked asked{[](const auto&) {
                      return TokenWeights{1.0 / 3, 2.0 / 3};
                    },
                    [](const auto&) {
                      return TokenWeights{2.0 / 3, 1.0 / 3};
                    }};
  EXPECT_NEAR(outcome(asked, RejectionVerifier()).accepted, 10.0 / 9, 1e-14);
  EXPECT_NEAR(outcome(asked, BlockVerifier()).accepted, 11.0 / 9, 1e-14);
}

TEST(BlockTest, KeepsTheDistributionOfWholeOutputs) {
  for (const Asked& asked : random_cases()) {
    double sum = 0.0;
    for (const auto& [output, mass] : outcome(asked, BlockVerifier()).tokens) {
      EXPECT_NEAR(mass, mass_of(asked, output), 1e-13);
      sum += mass;
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(BlockTest, NeverAcceptsFewerTokensThanRejection) {
  int64_t more = 0;
  for (const Asked& asked : random_cases()) {
    const double block = outcome(asked, BlockVerifier()).accepted;
    const double rejection = outcome(asked, RejectionVerifier()).accepted;
    EXPECT_GE(block, rejection - 1e-13);
    more += block > rejection + 1e-6 ? 1 : 0;
    if (asked.length == 1) {
      EXPECT_NEAR(block, rejection, 1e-13) << "one token is checked alone";
    }
  }
  EXPECT_GT(more, 4);
}

TEST(BlockTest, ADrafterThatEqualsTheTargetIsAcceptedWhole) {
  Asked asked = random_cases()[2];
  asked.drafter = asked.target;
  EXPECT_NEAR(outcome(asked, BlockVerifier()).accepted, static_cast<double>(asked.length), 1e-13);
}

TEST(BlockTest, GreedyDistributionsNeedNoRandomness) {
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(2, 1);
  draft.add(2, 2);
  const Tensor probs = at::one_hot(at::tensor({1, 2, 0, 1}, at::kLong), 3).to(at::kDouble);
  EnumeratingRandomness random;
  const VerifyResult result = verify_with(BlockVerifier(), draft, probs, 1, random);
  EXPECT_EQ(result.path, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(result.next, 0);
  EXPECT_EQ(random.probability(), 1.0);
}

TEST(BlockTest, WithoutADraftItDrawsFromTheTarget) {
  std::map<Token, double> distribution;
  EnumeratingRandomness random;
  do {
    const Tensor probs = at::tensor({0.25, 0.75}).to(at::kDouble).unsqueeze(0);
    const VerifyResult result = verify_with(BlockVerifier(), Draft::root(0), probs, 1, random);
    distribution[result.next] += random.probability();
  } while (random.next_outcome());
  EXPECT_EQ(distribution, (std::map<Token, double>{{0, 0.25}, {1, 0.75}}));
}

TEST(BlockTest, RefusesTreesAndDistributionsThatTheDraftWasNotDrawnFrom) {
  EXPECT_FALSE(BlockVerifier().allows_trees());
  CounterRandomness random(1);
  const Tensor probs = at::full({3, 2}, 0.5, at::kDouble);
  Draft tree = Draft::root(0);
  tree.add(0, 0);
  tree.add(1, 0);
  EXPECT_THROW(verify_with(BlockVerifier(), tree, probs, 1, random), InternalError);
  Draft wrong = Draft::root(0);
  wrong.probs = {TokenProbs(std::vector<double>{0.0, 1.0})};
  wrong.child_probs[0] = 0;
  wrong.add(0, 0);
  wrong.add(1, 1);
  EXPECT_THROW(verify_with(BlockVerifier(), wrong, probs, 1, random), InternalError);
}

}  // namespace
}  // namespace specdec
