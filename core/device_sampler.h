#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/draft.h"
#include "core/drawn_chain.h"
#include "core/drawn_tree.h"
#include "core/read_backs.h"
#include "core/sampling.h"
#include "core/token_probs.h"

namespace specdec {

/// Rules of verification that a device has a kernel for.
enum class DeviceRule {
  kNone,         ///< none: the host reads rows of logits
  kDraw,         ///< a chain stays as it is, and the token after it is drawn
  kSampleMatch,  ///< decoders/verifiers/sample_match.h
  kRejection,    ///< decoders/verifiers/rejection.h
  kBlock         ///< decoders/verifiers/block.h: chains only
};

/// Tokens that may follow a node, as TokenMask of grammar/ has them; one of no token stands where
/// the text is over, and masks nothing. Borrowed.
struct NodeMask {
  AllowedTokens base;  ///< nullptr: none
  std::span<const Token> added = {}, removed = {};
  /// Whether nothing is drafted after the node, whatever its logits are: the other members are not
  /// read.
  bool closed = false;
};

/// A draft and what decides about it beside the target's logits. Borrows all.
struct SampledDraft {
  DeviceRule rule = DeviceRule::kDraw;
  const Draft& draft;
  const SamplingParams& sampling;        ///< at a temperature, without bias and penalty
  std::span<const NodeMask> masks = {};  ///< [n] after each node; empty = all tokens are allowed
  std::array<uint32_t, 2> key = {};      ///< Randomness::device_key
  int64_t position = 0;                  ///< of the token after the root, in the sequence
};

/// What a device decided about a draft.
struct DeviceDecision {
  VerifyResult verified;
  std::vector<LogMasses> masses;  ///< [path], where there are masks: those of the token after each
  ReadBacks read_backs;
};

/// What is chosen after each of n nodes without randomness.
struct DeviceChoices {
  std::vector<GreedyChoice> best;  ///< [n] of the allowed tokens
  std::vector<LogMasses> masses;   ///< [n] of these tokens
  ReadBacks read_backs;
};

/// A chain in progress, whose tokens are drawn where the logits lie.
class ChainDrawing {
 public:
  virtual ~ChainDrawing() = default;
  /// Draws a token, from 0, by the logits [1, columns] after those before; returns it, [1] int32 on
  /// the device, one of the target's, also where the logits are damaged. Launches kernels only,
  /// where the ops of the sampler launch theirs, so that a graph may hold them (Ops::record).
  /// InternalError for a token that was not asked for.
  virtual at::Tensor draw(int64_t index, const at::Tensor& logits) = 0;
  /// Numbers that say all that these launches depend on, beside the logits: sizes, options and
  /// addresses of memory, in which the random numbers' key lies.
  virtual std::vector<int64_t> key() const = 0;
  /// Reads the tokens back once all were drawn, at once. Nothing where logits were not numbers or
  /// all -inf: then the host says so.
  virtual std::optional<DrawnChain> read() = 0;
};

/// A tree in progress, whose tokens are found where the logits lie, level by level.
class DraftTreeDrawing {
 public:
  virtual ~DraftTreeDrawing() = default;
  /// Finds the children of a level, from 0, of branching_nodes: by the logits [k, vocab] after its
  /// nodes, which may be one row k times (at::Tensor::expand), and by masks [k] of the columns
  /// there; no masks = all may follow. Levels are found in order. Returns, [k'] int32 on the
  /// device, the tokens of the next level, within the vocabulary also where there is none;
  /// undefined after the last one. Without masks it launches kernels only, as ChainDrawing::draw
  /// does. InternalError for a level that the tree has not.
  virtual at::Tensor draw(int64_t level, const at::Tensor& logits,
                          std::span<const NodeMask> masks) = 0;
  /// Which nodes of the level before those of a level, from 1, follow: [k] int32 on the device. It
  /// lies there as draw() has its tables, so trees of one key may differ in it.
  virtual at::Tensor parents_in_level(int64_t level) const = 0;
  /// Key of the launches of all levels without masks, as ChainDrawing::key: trees whose levels have
  /// as many nodes share one. Empty where the memory lies elsewhere for each tree, so that no graph
  /// can hold them.
  virtual std::vector<int64_t> key() const = 0;
  /// Reads the tokens back that the first `levels` levels found, but for those that were read
  /// before, at once, and returns all so far; the nodes of later levels are not there. Nothing
  /// where logits after a node of the tree were not numbers, or are -inf for all tokens that may
  /// follow it: then the host says so. InternalError where that is no level more.
  virtual std::optional<DrawnTree> read(int64_t levels) = 0;
};

/// The likeliest tokens after each of n nodes, best first.
struct DeviceCandidates {
  std::vector<std::vector<Candidate>> best;  ///< [n]
  ReadBacks read_backs;
};

/// Makes distributions of logits where they lie, verifies drafts by them and draws tokens: by the
/// rules, and with the random numbers, of the host's verifiers. Sums are added in another order, so
/// a token is another one than on the host where a random number falls within rounding (some 1e-13)
/// of a border.
class DeviceSampler {
 public:
  virtual ~DeviceSampler() = default;
  /// Decides about a draft of n nodes by the logits [n, vocab] after them. Nothing where those of a
  /// node on the path are not numbers or allow no token: then the host says so. InternalError for a
  /// draft that is not what its rule or its distributions say.
  virtual std::optional<DeviceDecision> decide(const at::Tensor& logits,
                                               const SampledDraft& sampled) = 0;
  /// The best tokens that the masks [n] leave of logits [n, vocab], as greedy_choice and log_masses
  /// have them. Nothing where a row's logits are not numbers or allow no token: then the host says
  /// so, if it comes to that row.
  virtual std::optional<DeviceChoices> choose(const at::Tensor& logits,
                                              std::span<const NodeMask> masks) = 0;
  /// Begins a chain over `vocab` columns of logits, which borrows the request's vocabulary alone.
  virtual std::unique_ptr<ChainDrawing> begin_chain(const ChainRequest& chain, int64_t vocab) = 0;
  /// Begins a tree over `vocab` columns of logits, which borrows nothing.
  virtual std::unique_ptr<DraftTreeDrawing> begin_tree(const TreeRequest& tree, int64_t vocab) = 0;
  /// Up to `count` columns of each row of logits [n, vocab] with the most mass under `sampling`,
  /// without bias and penalty, at temperature 1 where that is greedy, and under masks [n]; no masks
  /// = all columns. Nothing where a row's logits are not numbers, or -inf for all that its mask
  /// leaves: then the host says so.
  virtual std::optional<DeviceCandidates> rank(const at::Tensor& logits,
                                               const SamplingParams& sampling, int64_t count,
                                               std::span<const NodeMask> masks) = 0;
};

}  // namespace specdec
