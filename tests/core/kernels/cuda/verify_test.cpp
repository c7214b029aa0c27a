#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/randomness.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

constexpr int64_t kPosition = 70;

/// Chains of one forward.
struct Chains {
  Tensor target;   // [chains, capacity + 1, vocab]
  Tensor drafted;  // [chains, capacity, vocab] or undefined
  Tensor tokens;   // [chains, capacity] int32
  std::vector<int32_t> lengths;

  int64_t count() const { return tokens.size(0); }
  int64_t capacity() const { return tokens.size(1); }
};

/// Distributions over a few tokens of the vocabulary, so that accepting and rejecting both happen.
Tensor random_distributions(at::IntArrayRef shape) {
  return (at::randn(shape, at::kDouble) * 2).softmax(-1);
}

Chains random_chains(int64_t chains, int64_t capacity, int64_t vocab, bool drawn,
                     std::mt19937_64& random) {
  Chains all;
  all.target = random_distributions({chains, capacity + 1, vocab});
  if (drawn) {
    all.drafted = random_distributions({chains, capacity, vocab});
    all.tokens = at::multinomial(all.drafted.view({-1, vocab}), 1).view({chains, capacity});
  } else {
    all.tokens = std::get<1>(all.target.narrow(1, 0, capacity).max(-1));
  }
  all.tokens = all.tokens.to(at::kInt).contiguous();
  for (int64_t chain = 0; chain < chains; ++chain) {
    all.lengths.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(capacity + 1)));
  }
  return all;
}

struct Verified {
  std::vector<int32_t> accepted, next;
};

Verified cuda_verify(const Chains& chains, uint64_t seed) {
  const auto count = static_cast<size_t>(chains.count());
  Verified verified{std::vector<int32_t>(count, -1), std::vector<int32_t>(count, -1)};
  std::vector<uint32_t> keys;
  std::vector<int64_t> positions;
  for (size_t chain = 0; chain < count; ++chain) {  // as CounterRandomness makes its key
    const auto block =
        philox4x32({static_cast<uint32_t>(chain), 0, 0, 0},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U)});
    keys.insert(keys.end(), {block[0], block[1]});
    positions.push_back(kPosition + static_cast<int64_t>(chain));
  }
  const cuda::VerifyChainsTask task = {
      chains.target.const_data_ptr<double>(),
      chains.drafted.defined() ? chains.drafted.const_data_ptr<double>() : nullptr,
      chains.tokens.const_data_ptr<int32_t>(),
      chains.lengths.data(),
      keys.data(),
      positions.data(),
      verified.accepted.data(),
      verified.next.data(),
      static_cast<int32_t>(count),
      static_cast<int32_t>(chains.capacity()),
      static_cast<int32_t>(chains.target.size(2))};
  EXPECT_EQ(specdec_cuda_verify_chains(&task, nullptr), 0);
  return verified;
}

/// A chain as the verifiers take it.
Draft draft_of(const Chains& chains, int64_t chain) {
  Draft draft = Draft::root(0);
  const int64_t vocab = chains.target.size(2);
  for (int64_t node = 0; node < chains.lengths[static_cast<size_t>(chain)]; ++node) {
    if (chains.drafted.defined()) {
      const double* probs = chains.drafted[chain][node].const_data_ptr<double>();
      draft.child_probs[static_cast<size_t>(node)] = std::ssize(draft.probs);
      draft.probs.emplace_back(std::vector<double>(probs, probs + vocab));
    }
    draft.add(chains.tokens[chain][node].item<int32_t>(), node);
  }
  return draft;
}

void expect_the_hosts(const Chains& chains, const Verifier& verifier, uint64_t seed,
                      const Verified& verified) {
  for (int64_t chain = 0; chain < chains.count(); ++chain) {
    const Draft draft = draft_of(chains, chain);
    CounterRandomness random(seed, static_cast<uint32_t>(chain));
    random.seek(kPosition + chain, Purpose::kVerify);
    const VerifyResult expected =
        verify_with(verifier, draft, chains.target[chain].narrow(0, 0, draft.size()).contiguous(),
                    kPosition + chain, random);
    const auto c = static_cast<size_t>(chain);
    EXPECT_EQ(verified.accepted[c] + 1, std::ssize(expected.path)) << "chain " << chain;
    EXPECT_EQ(verified.next[c], expected.next) << "chain " << chain;
  }
}

TEST(CudaVerifyTest, RejectionDecidesAsTheVerifierDoes) {
  at::manual_seed(9);
  std::mt19937_64 random(9);
  int64_t accepted = 0;
  int64_t drafted = 0;
  for (const int64_t vocab : {2, 5, 300, 1000}) {
    for (const bool drawn : {true, false}) {
      for (uint64_t seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(testing::Message() << vocab << " tokens, seed " << seed);
        cuda::emulation::set_seed(seed);
        const Chains chains = random_chains(6, 5, vocab, drawn, random);
        const Verified verified = cuda_verify(chains, seed + (uint64_t{1} << 40U));
        expect_the_hosts(chains, RejectionVerifier(), seed + (uint64_t{1} << 40U), verified);
        for (size_t chain = 0; chain < 6; ++chain) {
          accepted += verified.accepted[chain];
          drafted += chains.lengths[chain];
        }
      }
    }
  }
  EXPECT_GT(accepted * 10, drafted * 2);  // both happen
  EXPECT_LT(accepted * 10, drafted * 8);
}

TEST(CudaVerifyTest, WhatTheDrafterKnowsIsAccepted) {
  at::manual_seed(10);
  std::mt19937_64 random(10);
  Chains chains = random_chains(4, 5, 50, true, random);
  chains.lengths = {0, 1, 4, 5};
  chains.target.narrow(1, 0, 5).copy_(chains.drafted);
  const Verified verified = cuda_verify(chains, 3);
  EXPECT_EQ(verified.accepted, chains.lengths);
  expect_the_hosts(chains, RejectionVerifier(), 3, verified);
}

TEST(CudaVerifyTest, GreedyMatchesAsTheVerifierDoes) {
  at::manual_seed(11);
  std::mt19937_64 random(11);
  Chains chains = random_chains(40, 6, 3, false, random);
  chains.tokens = chains.tokens.where(at::rand(chains.tokens.sizes()) < 0.7, 1).contiguous();
  const Tensor best = std::get<1>(chains.target.max(-1)).to(at::kInt).contiguous();
  Verified verified{std::vector<int32_t>(40, -1), std::vector<int32_t>(40, -1)};
  const cuda::MatchChainsTask task = {best.const_data_ptr<int32_t>(),
                                      chains.tokens.const_data_ptr<int32_t>(),
                                      chains.lengths.data(),
                                      verified.accepted.data(),
                                      verified.next.data(),
                                      40,
                                      6};
  ASSERT_EQ(specdec_cuda_match_chains(&task, nullptr), 0);
  expect_the_hosts(chains, ExactMatchVerifier(), 0, verified);
}

}  // namespace
}  // namespace specdec
