#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/philox.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "tests/core/kernels/cuda/planted_kernels.h"
#include "tests/core/kernels/cuda/verify_arguments.h"
#include "tests/support/verify_with.h"

namespace specdec {
namespace {

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

using VerifyKernel = std::function<int(const cuda::VerifyChainsTask&)>;

int verify_by_rejection(const cuda::VerifyChainsTask& task) {
  return specdec_cuda_verify_chains(&task, nullptr);
}

int verify_by_blocks(const cuda::VerifyChainsTask& task) {
  return specdec_cuda_verify_blocks(&task, nullptr);
}

Verified cuda_verify(const VerifyKernel& kernel, const Chains& chains, uint64_t seed) {
  const auto count = static_cast<size_t>(chains.count());
  Verified verified{std::vector<int32_t>(count, -1), std::vector<int32_t>(count, -1)};
  const VerifyArguments arguments(chains.count(), seed);
  EXPECT_EQ(
      kernel({chains.target.const_data_ptr<double>(),
              chains.drafted.defined() ? chains.drafted.const_data_ptr<double>() : nullptr,
              chains.tokens.const_data_ptr<int32_t>(), chains.lengths.data(), arguments.keys.data(),
              arguments.positions.data(), verified.accepted.data(), verified.next.data(),
              static_cast<int32_t>(count), static_cast<int32_t>(chains.capacity()),
              static_cast<int32_t>(chains.target.size(2))}),
      0);
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

/// Chains that the verifier decides otherwise.
int64_t differences(const Chains& chains, const Verifier& verifier, uint64_t seed,
                    const Verified& verified) {
  int64_t count = 0;
  for (int64_t chain = 0; chain < chains.count(); ++chain) {
    const Draft draft = draft_of(chains, chain);
    CounterRandomness random = verify_randomness(seed, chain);
    const VerifyResult expected =
        verify_with(verifier, draft, chains.target[chain].narrow(0, 0, draft.size()).contiguous(),
                    kVerifyPosition + chain, random);
    const auto c = static_cast<size_t>(chain);
    const bool equal =
        verified.accepted[c] + 1 == std::ssize(expected.path) && verified.next[c] == expected.next;
    count += equal ? 0 : 1;
  }
  return count;
}

struct Comparison {
  int64_t differences = 0;
  int64_t accepted = 0, drafted = 0;
};

Comparison compare_random_chains(const VerifyKernel& kernel, const Verifier& verifier) {
  at::manual_seed(9);
  std::mt19937_64 random(9);
  Comparison result;
  for (const int64_t vocab : {2, 5, 300, 1000}) {
    for (const bool drawn : {true, false}) {
      for (uint64_t seed = 0; seed < 10; ++seed) {
        cuda::emulation::set_seed(seed);
        const Chains chains = random_chains(6, 5, vocab, drawn, random);
        const Verified verified = cuda_verify(kernel, chains, seed + (uint64_t{1} << 40U));
        result.differences += differences(chains, verifier, seed + (uint64_t{1} << 40U), verified);
        for (size_t chain = 0; chain < 6; ++chain) {
          result.accepted += verified.accepted[chain];
          result.drafted += chains.lengths[chain];
        }
      }
    }
  }
  return result;
}

/// Chains of one token whose probability is the random number that decides about it.
int64_t differences_at_the_edge(const VerifyKernel& kernel) {
  constexpr uint64_t kSeed = 5;
  Chains chains;
  chains.target = at::zeros({4, 2, 3}, at::kDouble);
  chains.tokens = at::full({4, 1}, 2, at::kInt);
  chains.lengths = {1, 1, 1, 1};
  const VerifyArguments arguments(4, kSeed);
  for (int64_t chain = 0; chain < 4; ++chain) {
    const auto c = static_cast<size_t>(chain);
    const double uniform = device::uniform(arguments.keys[2 * c], arguments.keys[2 * c + 1],
                                           static_cast<uint64_t>(arguments.positions[c]),
                                           static_cast<uint32_t>(Purpose::kVerify), 0);
    chains.target[chain][0][2] = uniform;
    chains.target[chain][0][0] = 1 - uniform;
    chains.target[chain][1][1] = 1;
  }
  return differences(chains, RejectionVerifier(), kSeed, cuda_verify(kernel, chains, kSeed));
}

/// Draws whose first sum is the random number, or next to it.
TEST(CudaVerifyTest, DrawsAtTheEdgeAsTheVerifierDoes) {
  constexpr uint64_t kSeed = 6;
  const VerifyArguments arguments(3, kSeed);
  Chains chains;
  chains.target = at::zeros({3, 1, 3}, at::kDouble);
  chains.tokens = at::empty({3, 0}, at::kInt);
  chains.lengths = {0, 0, 0};
  for (int64_t chain = 0; chain < 3; ++chain) {
    const auto c = static_cast<size_t>(chain);
    const double uniform = device::uniform(arguments.keys[2 * c], arguments.keys[2 * c + 1],
                                           static_cast<uint64_t>(arguments.positions[c]),
                                           static_cast<uint32_t>(Purpose::kVerify), 0);
    const double sum = chain == 0 ? uniform : std::nextafter(uniform, chain == 1 ? 0.0 : 1.0);
    chains.target[chain][0][0] = sum;
    chains.target[chain][0][2] = 1.0 - sum;
  }
  const Verified verified = cuda_verify(verify_by_rejection, chains, kSeed);
  EXPECT_EQ(verified.next, (std::vector<int32_t>{2, 2, 0}));
  EXPECT_EQ(differences(chains, RejectionVerifier(), kSeed, verified), 0);
}

void expect_no_differences(const VerifyKernel& kernel, const Verifier& verifier) {
  const Comparison result = compare_random_chains(kernel, verifier);
  EXPECT_EQ(result.differences, 0);
  EXPECT_GT(result.accepted * 10, result.drafted * 2);  // both happen
  EXPECT_LT(result.accepted * 10, result.drafted * 8);
}

TEST(CudaVerifyTest, RejectionDecidesAsTheVerifierDoes) {
  expect_no_differences(verify_by_rejection, RejectionVerifier());
  EXPECT_EQ(differences_at_the_edge(verify_by_rejection), 0);
}

TEST(CudaVerifyTest, BlocksDecideAsTheVerifierDoes) {
  expect_no_differences(verify_by_blocks, BlockVerifier());
}

/// What the tests above are worth: they find what these kernels do wrong. These run in the
/// emulation alone, so the suite is none of a GPU's.
TEST(PlantedFaultsTest, VerificationFindsThem) {
  for (const cuda::VerifyFault fault :
       {cuda::VerifyFault::kNoBarrier, cuda::VerifyFault::kAcceptsEqual,
        cuda::VerifyFault::kFirstUnchecked}) {
    const VerifyKernel planted = [fault](const cuda::VerifyChainsTask& task) {
      return cuda::planted_verify(fault, task);
    };
    EXPECT_GT(compare_random_chains(planted, RejectionVerifier()).differences +
                  differences_at_the_edge(planted),
              0)
        << static_cast<int>(fault);
  }
}

TEST(CudaVerifyTest, WhatTheDrafterKnowsIsAccepted) {
  at::manual_seed(10);
  std::mt19937_64 random(10);
  Chains chains = random_chains(4, 5, 50, true, random);
  chains.lengths = {0, 1, 4, 5};
  chains.target.narrow(1, 0, 5).copy_(chains.drafted);
  Verified verified = cuda_verify(verify_by_rejection, chains, 3);
  EXPECT_EQ(verified.accepted, chains.lengths);
  EXPECT_EQ(differences(chains, RejectionVerifier(), 3, verified), 0);
  verified = cuda_verify(verify_by_blocks, chains, 3);
  EXPECT_EQ(verified.accepted, chains.lengths);
  EXPECT_EQ(differences(chains, BlockVerifier(), 3, verified), 0);
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
  EXPECT_EQ(differences(chains, ExactMatchVerifier(), 0, verified), 0);
}

}  // namespace
}  // namespace specdec
