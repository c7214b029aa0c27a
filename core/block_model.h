#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "core/draft.h"
#include "core/types.h"

namespace specdec {

class DraftVocabulary;

/// A head that drafts a block of tokens in one forward, beside the target whose residual streams it
/// is fed: what all block drafters (DFlash and its successors) look like to the one that runs them.
/// It keeps a cache of committed tokens, one less than there are, since nobody has evaluated the
/// newest one.
class BlockModel {
 public:
  virtual ~BlockModel() = default;
  BlockModel() = default;
  BlockModel(const BlockModel&) = delete;
  BlockModel& operator=(const BlockModel&) = delete;

  virtual int64_t vocab_size() const = 0;
  /// Columns of the target's features.
  virtual int64_t feature_width() const = 0;
  /// Most tokens that a block drafts.
  virtual int64_t depth() const = 0;
  /// Number of tokens that are kept.
  virtual int64_t length() const = 0;
  /// Forgets all tokens that are kept.
  virtual void reset() = 0;
  /// Keeps all of the committed tokens but the newest one; features [n, width] of those that it has
  /// not kept yet.
  virtual void keep(TokenSpan committed, const Tensor& features) = 0;
  /// Evaluates the block that begins with the newest committed token, whose first `wanted` tokens
  /// will be drafted. Nothing of it is kept.
  virtual void evaluate(Token newest, int64_t wanted) = 0;
  /// Logits [k, vocab] of the token after each of the nodes of a draft of this block, whose parents
  /// were asked for before.
  virtual Tensor logits(const Draft& partial, std::span<const int64_t> nodes) = 0;
  /// Tokens of the columns of these logits, when they are not all: then [k, columns].
  virtual const DraftVocabulary* draft_vocabulary() const { return nullptr; }
  /// Whether logits may be -inf, of tokens that are never drafted.
  virtual bool leaves_out_tokens() const { return false; }
  /// Logits [k] of the probability that a draft after each of the nodes is accepted, predicted from
  /// what was drafted before it; undefined: it predicts nothing.
  virtual Tensor confidence(const Draft& partial, std::span<const int64_t> nodes) {
    (void)partial, (void)nodes;
    return {};
  }
};

}  // namespace specdec
