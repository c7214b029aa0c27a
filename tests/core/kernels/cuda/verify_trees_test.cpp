#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "tests/core/kernels/cuda/verify_arguments.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

constexpr int64_t kTreeCapacity = 12;  // drafted nodes

/// Drafted trees, and the same as the kernels get them.
struct DraftedTrees {
  std::vector<Draft> drafts;
  Tensor target;  ///< [trees, capacity + 1, vocab]
  std::vector<double> drafted;
  std::vector<int32_t> drawn_from, tokens, parents, sizes;

  int64_t count() const { return std::ssize(drafts); }
  int64_t vocab() const { return target.size(2); }

  void add(const Draft& draft) {
    for (int64_t node = 0; node <= kTreeCapacity; ++node) {
      const auto n = static_cast<size_t>(node);
      const bool exists = node < draft.size();
      tokens.push_back(exists ? draft.tokens[n] : -9);
      parents.push_back(exists ? static_cast<int32_t>(draft.parents[n]) : -9);
      drawn_from.push_back(-1);
      if (const TokenProbs* probs = exists ? draft.drawn_from(node) : nullptr) {
        drawn_from.back() = static_cast<int32_t>(std::ssize(drafted) / vocab());
        const std::vector<double> row = probs->row();
        drafted.insert(drafted.end(), row.begin(), row.end());
      }
    }
    sizes.push_back(static_cast<int32_t>(draft.size()));
    drafts.push_back(draft);
  }
};

/// Siblings hold different tokens, in any order.
Draft random_tree(int64_t vocab, std::mt19937_64& random) {
  Draft draft = Draft::root(0);
  const auto size = 1 + static_cast<int64_t>(random() % (kTreeCapacity + 1));
  for (int64_t node = 0; node < draft.size() && draft.size() < size; ++node) {
    if (random() % 4 != 0) {
      const Tensor probs = (at::randn({vocab}, at::kDouble) * 2).softmax(-1);
      const double* row = probs.const_data_ptr<double>();
      draft.child_probs[static_cast<size_t>(node)] = std::ssize(draft.probs);
      draft.probs.emplace_back(std::vector<double>(row, row + vocab));
    }
    std::vector<Token> tokens(static_cast<size_t>(vocab));
    std::iota(tokens.begin(), tokens.end(), 0);
    std::shuffle(tokens.begin(), tokens.end(), random);
    const auto children =
        std::min<int64_t>({static_cast<int64_t>(random() % 5), size - draft.size(), vocab});
    for (int64_t child = 0; child < children; ++child) {
      draft.add(tokens[static_cast<size_t>(child)], node);
    }
  }
  return draft;
}

DraftedTrees random_trees(int64_t count, int64_t vocab, std::mt19937_64& random) {
  DraftedTrees trees;
  trees.target = (at::randn({count, kTreeCapacity + 1, vocab}, at::kDouble) * 2).softmax(-1);
  for (int64_t tree = 0; tree < count; ++tree) {
    trees.add(random_tree(vocab, random));
  }
  return trees;
}

struct VerifiedTrees {
  std::vector<int32_t> paths, accepted, next;

  explicit VerifiedTrees(int64_t count)
      : paths(static_cast<size_t>(count * (kTreeCapacity + 1)), -7),
        accepted(static_cast<size_t>(count), -7),
        next(static_cast<size_t>(count), -7) {}

  std::vector<int64_t> path(int64_t tree) const {
    const auto first = paths.begin() + tree * (kTreeCapacity + 1);
    return {first, std::find(first, first + kTreeCapacity + 1, -1)};
  }
};

void expect_the_verifiers(const DraftedTrees& trees, const Verifier& verifier, uint64_t seed,
                          const VerifiedTrees& verified) {
  for (int64_t tree = 0; tree < trees.count(); ++tree) {
    const auto t = static_cast<size_t>(tree);
    const Draft& draft = trees.drafts[t];
    CounterRandomness random = verify_randomness(seed, tree);
    const VerifyResult expected =
        verify_with(verifier, draft, trees.target[tree].narrow(0, 0, draft.size()).contiguous(),
                    kVerifyPosition + tree, random);
    EXPECT_EQ(verified.path(tree), expected.path) << "tree " << tree;
    EXPECT_EQ(verified.accepted[t] + 1, std::ssize(expected.path));
    EXPECT_EQ(verified.next[t], expected.next) << "tree " << tree;
  }
}

VerifiedTrees cuda_verify_trees(const DraftedTrees& trees, uint64_t seed) {
  VerifiedTrees verified(trees.count());
  const VerifyArguments arguments(trees.count(), seed);
  const Tensor workspace = at::full({trees.count(), 2, trees.vocab()}, 99, at::kDouble);
  const cuda::VerifyTreesTask task = {trees.target.const_data_ptr<double>(),
                                      trees.drafted.data(),
                                      trees.drawn_from.data(),
                                      trees.tokens.data(),
                                      trees.parents.data(),
                                      trees.sizes.data(),
                                      arguments.keys.data(),
                                      arguments.positions.data(),
                                      workspace.mutable_data_ptr<double>(),
                                      verified.paths.data(),
                                      verified.accepted.data(),
                                      verified.next.data(),
                                      static_cast<int32_t>(trees.count()),
                                      kTreeCapacity,
                                      static_cast<int32_t>(trees.vocab())};
  EXPECT_EQ(specdec_cuda_verify_trees(&task, nullptr), 0);
  return verified;
}

TEST(CudaVerifyTreesTest, RejectionDecidesAsTheVerifierDoes) {
  at::manual_seed(51);
  std::mt19937_64 random(51);
  int64_t accepted = 0;
  int64_t rejected_siblings = 0;
  for (const int64_t vocab : {2, 6, 300, 700}) {
    for (uint64_t seed = 0; seed < 15; ++seed) {
      SCOPED_TRACE(testing::Message() << vocab << " tokens, seed " << seed);
      cuda::emulation::set_seed(seed);
      const DraftedTrees trees = random_trees(6, vocab, random);
      const VerifiedTrees verified = cuda_verify_trees(trees, seed);
      expect_the_verifiers(trees, RejectionVerifier(), seed, verified);
      for (int64_t tree = 0; tree < 6; ++tree) {
        const Draft& draft = trees.drafts[static_cast<size_t>(tree)];
        for (const int64_t node : verified.path(tree)) {
          accepted += node > 0 ? 1 : 0;
          rejected_siblings +=
              node > 0 && draft.children(draft.parents[static_cast<size_t>(node)])[0] != node ? 1
                                                                                              : 0;
        }
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(rejected_siblings, 20);
}

/// The last child of a node whose children take all the mass that is left stays.
TEST(CudaVerifyTreesTest, ChildrenThatHoldAllTokensLeaveNone) {
  at::manual_seed(52);
  DraftedTrees trees;
  trees.target = at::randn({20, kTreeCapacity + 1, 3}, at::kDouble).softmax(-1);
  for (int64_t tree = 0; tree < 20; ++tree) {
    Draft draft = Draft::root(0);
    for (Token token = 0; token < 3; ++token) {
      draft.add(token, 0);
    }
    trees.add(draft);
  }
  const VerifiedTrees verified = cuda_verify_trees(trees, 8);
  expect_the_verifiers(trees, RejectionVerifier(), 8, verified);
  EXPECT_EQ(verified.accepted, std::vector<int32_t>(20, 1));
}

TEST(CudaVerifyTreesTest, GreedyMatchesAsTheVerifierDoes) {
  at::manual_seed(53);
  std::mt19937_64 random(53);
  const DraftedTrees trees = random_trees(60, 4, random);
  const Tensor best = std::get<1>(trees.target.max(-1)).to(at::kInt).contiguous();
  VerifiedTrees verified(60);
  const cuda::MatchTreesTask task = {best.const_data_ptr<int32_t>(),
                                     trees.tokens.data(),
                                     trees.parents.data(),
                                     trees.sizes.data(),
                                     verified.paths.data(),
                                     verified.accepted.data(),
                                     verified.next.data(),
                                     60,
                                     kTreeCapacity};
  ASSERT_EQ(specdec_cuda_match_trees(&task, nullptr), 0);
  expect_the_verifiers(trees, ExactMatchVerifier(), 0, verified);
}

TEST(CudaVerifyTreesTest, RefusesAnEmptyVocabulary) {
  cuda::VerifyTreesTask task{};
  task.trees = 1;
  EXPECT_EQ(specdec_cuda_verify_trees(&task, nullptr), cuda::kInvalidValue);
  cuda::VerifyChainsTask chains{};
  chains.chains = 1;
  EXPECT_EQ(specdec_cuda_verify_blocks(&chains, nullptr), cuda::kInvalidValue);
  EXPECT_EQ(specdec_cuda_verify_chains(&chains, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
