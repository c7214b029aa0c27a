#pragma once
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/device_sampler.h"
#include "core/language_model.h"
#include "core/randomness.h"
#include "decoders/analysis/sequence_distribution.h"
#include "decoders/decoding_strategy.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/recording_ops.h"

/// What tests of drafts that are drawn on a device share.
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
                                  const SamplingParams& sampling, int64_t tokens,
                                  std::shared_ptr<const CompiledGrammar> grammar = nullptr) {
  Task task{.prompt = prompt, .sampling = sampling, .stop = {.max_new_tokens = tokens}};
  task.constraint.grammar = std::move(grammar);
  CounterRandomness random(prompt.size());
  Request request = task.request(random);
  request.log_rejected = true;
  return strategy.generate(request);
}

/// A grammar that leaves few tokens, and forces some.
inline std::shared_ptr<const CompiledGrammar> chain_grammar() {
  return letter_grammar({"a", "b", "ab", "ba", "c", ""}, "a(b(a|b)|aab|c{2})(ab|b|c){0,40}");
}

/// The request of a chain.
struct ChainDraws {
  SamplingParams sampling{.temperature = 0.8, .top_k = 12, .top_p = 0.95};
  DeviceRandomness random{.key = *CounterRandomness(8).device_key(), .position = 31};

  ChainRequest drawn(int64_t count) const {
    return {.count = count, .sampling = sampling, .random = random};
  }
  ChainRequest best(int64_t count) const { return {.count = count, .sampling = sampling}; }
};

/// Counts forwards' ops that are called beside a graph, and copies.
class DraftLaunches {
 public:
  explicit DraftLaunches(RecordingOps& ops) : ops_(ops) {
    at::addThreadLocalCallback(at::RecordFunctionCallback(&count));
    ops_.take_calls();
    copied = 0;
  }
  ~DraftLaunches() { at::clearThreadLocalCallbacks(); }
  DraftLaunches(const DraftLaunches&) = delete;
  DraftLaunches& operator=(const DraftLaunches&) = delete;
  size_t ops() const { return ops_.take_calls().size(); }
  static int64_t copies() { return copied; }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
    copied += std::string_view(call.name()) == "aten::copy_" ? 1 : 0;
    return nullptr;
  }
  RecordingOps& ops_;
  static inline thread_local int64_t copied = 0;
};

/// A tree as shapes grow it without draw_tree: `fed` are kept, and a forward evaluates each level.
/// `features`: of a head, which feeds its own ones behind them.
inline std::optional<DrawnTree> grown_tree(LanguageModel& model, TokenSpan fed, TreeRequest request,
                                           const Tensor& features = {}) {
  request.vocabulary = model.draft_vocabulary();
  ForwardOptions options{.logits = Logits::kLast,
                         .logits_use = LogitsUse::kSampler,
                         .keep_hidden = true,
                         .draft_columns = true};
  options.hidden = features.defined() ? Hidden::kScored : Hidden::kNone;
  ForwardResult result = model.extend(fed, options, {.features = features});
  const auto drawing = result.sampler->begin_tree(request, result.logits.size(1));
  options.logits = Logits::kAll;
  std::vector<Tensor> own(request.parents.size());
  std::vector<int64_t> pending(request.parents.size(), -1);
  int64_t next = 0;
  int64_t found = 0;
  Tensor tokens;
  for (const std::vector<int64_t>& level : branching_nodes(request.parents)) {
    TokenBatch batch{.tokens = tokens};
    std::vector<Tensor> before;
    for (const int64_t node : level) {
      if (node > 0) {
        const auto parent = static_cast<size_t>(request.parents[static_cast<size_t>(node)]);
        batch.parents.push_back(pending[parent]);
        before.push_back(own[parent]);
        pending[static_cast<size_t>(node)] = next++;
      }
    }
    if (features.defined() && !before.empty()) {
      batch.inputs = {.features = at::cat(before), .own_features = true};
    }
    result = found > 0 ? model.forward(batch, options) : result;
    for (size_t i = 0; features.defined() && i < level.size(); ++i) {
      own[static_cast<size_t>(level[i])] =
          result.final_hidden.narrow(0, static_cast<int64_t>(i), 1).clone();
    }
    tokens = drawing->draw(found++, result.logits, {});
  }
  return drawing->read(found);
}

inline void expect_the_same_tree(const std::optional<DrawnTree>& drawn,
                                 const std::optional<DrawnTree>& wanted) {
  ASSERT_TRUE(drawn.has_value() && wanted.has_value());
  EXPECT_EQ(drawn->tokens, wanted->tokens);
  EXPECT_EQ(drawn->read_backs, wanted->read_backs);
  ASSERT_EQ(drawn->probs.defined(), wanted->probs.defined());
  EXPECT_TRUE(!drawn->probs.defined() || at::equal(drawn->probs, wanted->probs));
}

/// Bytes of a node that a device reads of a tree; as many for each that has children.
constexpr int64_t kTreeNodeBytes = 4;

/// Shapes of trees: ranks that are left out, and more children than some distributions have tokens.
inline const std::vector<std::vector<int64_t>> kDrawnPaths = {
    {0}, {1}, {3}, {0, 0}, {0, 2}, {1, 0}, {0, 2, 0}, {1, 0, 0}, {1, 0, 1}};

inline std::unique_ptr<DraftShape> tree_shape() {
  return std::make_unique<StaticTreeShape>(tree_of_paths(kDrawnPaths));
}

/// Accepted tokens of the device's generation, which has the host's tokens and drafts and reads
/// less back.
inline int64_t expect_the_hosts_drafts(const Generation& device, const Generation& host) {
  EXPECT_EQ(device.tokens, host.tokens);
  EXPECT_EQ(device.steps.size(), host.steps.size());
  int64_t accepted = 0;
  for (size_t i = 0; i < std::min(device.steps.size(), host.steps.size()); ++i) {
    const StepStatistics& step = device.steps[i];
    EXPECT_EQ(step.drafted, host.steps[i].drafted);
    EXPECT_EQ(step.accepted, host.steps[i].accepted);
    EXPECT_EQ(step.rejected, host.steps[i].rejected);
    EXPECT_EQ(step.read_backs, host.steps[i].read_backs);
    EXPECT_GE(host.steps[i].draft_read_backs.count, step.draft_read_backs.count);
    EXPECT_GE(host.steps[i].draft_read_backs.bytes, step.draft_read_backs.bytes);
    accepted += step.accepted;
  }
  return accepted;
}

/// Expects the host's tokens of drafts that are read back at once.
inline int64_t expect_the_hosts_tokens(const Generation& device, const Generation& host,
                                       int64_t bytes_of_a_token) {
  for (const StepStatistics& step : device.steps) {
    EXPECT_EQ(step.draft_read_backs.count, step.drafted > 0 ? 1 : 0);
    EXPECT_GE(step.draft_read_backs.bytes, bytes_of_a_token * step.drafted);
    EXPECT_EQ(step.draft_read_backs.bytes % bytes_of_a_token, 0);
  }
  return expect_the_hosts_drafts(device, host);
}

}  // namespace specdec
