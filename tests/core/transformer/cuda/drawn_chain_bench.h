#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/randomness.h"
#include "decoders/analysis/sequence_distribution.h"
#include "decoders/decoding_strategy.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"

/// What tests of chains that are drawn on a device share.
namespace specdec {

/// Who draws a draft: LockedModel hands nothing on that would let the device do it.
enum class DrawnBy { kDevice, kHost };

/// The later ones begin otherwise, and as the first does.
inline const std::vector<std::vector<Token>> kChainPrompts = {{3, 1, 4, 1}, {9}, {3, 1, 4, 2, 6}};

/// kNone: that of greedy requests.
inline std::unique_ptr<Verifier> verifier_of(DeviceRule rule) {
  switch (rule) {
    case DeviceRule::kRejection:
      return std::make_unique<RejectionVerifier>();
    case DeviceRule::kBlock:
      return std::make_unique<BlockVerifier>();
    case DeviceRule::kSampleMatch:
      return std::make_unique<SampleMatchVerifier>();
    default:
      return std::make_unique<ExactMatchVerifier>();
  }
}

/// Generates, and logs what is rejected of the drafts.
inline Generation generate_chains(DecodingStrategy& strategy, const std::vector<Token>& prompt,
                                  const SamplingParams& sampling, int64_t tokens) {
  const Task task{.prompt = prompt, .sampling = sampling, .stop = {.max_new_tokens = tokens}};
  CounterRandomness random(prompt.size());
  Request request = task.request(random);
  request.log_rejected = true;
  return strategy.generate(request);
}

/// Accepted tokens of the device's generation, which has the host's tokens and drafts.
inline int64_t expect_the_hosts_tokens(const Generation& device, const Generation& host,
                                       int64_t bytes_of_a_token) {
  EXPECT_EQ(device.tokens, host.tokens);
  EXPECT_EQ(device.steps.size(), host.steps.size());
  int64_t accepted = 0;
  for (size_t i = 0; i < std::min(device.steps.size(), host.steps.size()); ++i) {
    const StepStatistics& step = device.steps[i];
    EXPECT_EQ(step.drafted, host.steps[i].drafted);
    EXPECT_EQ(step.accepted, host.steps[i].accepted);
    EXPECT_EQ(step.rejected, host.steps[i].rejected);
    EXPECT_EQ(step.read_backs, host.steps[i].read_backs);
    EXPECT_EQ(step.draft_read_backs.count, step.drafted > 0 ? 1 : 0);
    EXPECT_GE(step.draft_read_backs.bytes, bytes_of_a_token * step.drafted);
    EXPECT_EQ(step.draft_read_backs.bytes % bytes_of_a_token, 0);
    EXPECT_GE(host.steps[i].draft_read_backs.count, step.drafted);
    accepted += step.accepted;
  }
  return accepted;
}

}  // namespace specdec
