#pragma once
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/forward.h"
#include "core/sampling.h"
#include "decoders/committed_text.h"
#include "decoders/target_probs.h"

namespace specdec {

/// The one place where bias, penalties, grammar masks and sampling transforms turn the target's
/// logits into distributions; and what is known of them afterwards.
class LogitsProcessor {
 public:
  /// Borrows all. `mask_seconds`: the sum to which masks add their seconds.
  LogitsProcessor(const Request& request, const CommittedText& text, int64_t vocab_size,
                  double* mask_seconds);

  /// What a request reads of the target's logits. The best tokens alone: it is greedy, and nothing
  /// changes the logits before. A device's sampler: nothing but a grammar's mask changes them, and
  /// the request is greedy, or samples with random numbers that the device knows.
  static LogitsUse use(const Request& request);

  int64_t vocab_size() const { return vocab_size_; }
  /// The distributions after each node of a draft, of which `result` has the logits [n, vocab] or,
  /// where a request reads no more, the best tokens. Each node's history is the text as it is now
  /// and its own path. They hold until the next call.
  TargetProbs& find(const Draft& draft, const ForwardResult& result);
  /// What the device where the logits lie decides about a draft, after the
  /// text as it is now; nothing where the host decides: find().
  std::optional<DeviceDecision> decide(DeviceRule rule, const Draft& draft,
                                       const ForwardResult& result);

  // What is known of the draft that `find` saw last.

  /// Copies to the host by which a device chose the best tokens; none after decide(), whose result
  /// says its own, and none where the host does it in the end.
  ReadBacks read_backs() const { return read_backs_; }
  /// Seconds until a device had chosen or decided, the rest of its forward among them.
  double device_seconds() const { return device_seconds_; }

  /// Distributions that `find` returned.
  TargetProbs& probs() { return probs_; }
  /// Gap when greedy: best minus second best of the processed logits after `node`.
  double gap(int64_t node);
  /// The grammar's masks after each node; empty without a grammar.
  const std::vector<TokenMask>& masks() const { return masks_; }
  /// Masses under a grammar: what its mask left of the distribution after `node`, whose history is
  /// given, and the token's own probability.
  LogMasses masses(int64_t node, TokenSpan history, Token token) const;

 private:
  void find_masks(const Draft& draft);
  std::vector<NodeMask> node_masks() const;
  /// Lets the device where the logits lie find the best tokens and their masses, where it can.
  void choose(DeviceSampler& sampler);
  AllowedTokens allowed(int64_t node) const;
  /// Makes a node's distribution; its errors say where in the text they are.
  TokenProbs make(int64_t node);
  TokenProbs distribution_of(int64_t node);
  GreedyChoice greedy(int64_t node, TokenSpan penalised) const;
  /// The best token by the request's weights. Throws Error where they forbid every token.
  GreedyChoice greedy_weighed(int64_t node, TokenSpan penalised) const;
  /// A node's distribution with the request's weights. Throws Error where they forbid every token.
  TokenProbs weighed(int64_t node, const TokenProbs& probs) const;
  /// Multiplies a row by the request's weights after a node. Throws Error for one that is none.
  void weigh(int64_t node, std::span<double> row) const;
  /// Whether the request's weights forbid a drafted token before or at a node, after which they
  /// are not asked: it cannot be reached, so any distribution will do there.
  bool is_forbidden(int64_t node);

  const Request& request_;
  const CommittedText& text_;
  int64_t vocab_size_;
  double* mask_seconds_;
  TargetProbs probs_;
  Draft draft_;                     // its tokens and parents
  size_t committed_ = 0;            // tokens of the text before the draft
  Tensor logits_;                   // [n, vocab], or undefined:
  std::vector<GreedyChoice> best_;  // then of each node
  std::vector<double> gaps_;
  std::vector<std::optional<bool>> forbidden_;  // of each node, by the weights
  std::vector<TokenMask> masks_;
  std::map<int64_t, LogMasses> decided_masses_;  // by node, of tokens that a device decided
  ReadBacks read_backs_;
  double device_seconds_ = 0.0;
};

}  // namespace specdec
