#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "core/draft_vocabulary.h"
#include "core/kernels/ops.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/tensor_writer.h"
#include "core/transformer/weights.h"

namespace specdec {

// The draft vocabulary of a head: the target's token of each of its logits, [draft vocab] int64;
// undefined = all tokens. In a file `d2t` holds the offsets, id = i + d2t[i], and `t2d` marks the
// tokens, [vocab] bool.

/// Throws WeightsError when d2t leaves the target's vocabulary, names a token twice or does not fit
/// t2d; undefined when the file has none and `draft_vocab` is the target's.
Tensor load_draft_ids(TensorSource& source, int64_t draft_vocab, int64_t vocab);
/// Writes a draft vocabulary's ids; nothing for undefined ones.
void write_draft_ids(TensorWriter& writer, const Tensor& ids, int64_t vocab);
/// The vocabulary that a head on `device` drafts with, in the order of the target's tokens.
std::optional<DraftVocabulary> draft_vocabulary(const Tensor& ids, int64_t vocab,
                                                at::Device device);

/// The rows of the target's own head that belong to a draft vocabulary, as a matrix of their own.
class DraftRows {
 public:
  DraftRows(const Tensor& ids, std::shared_ptr<const TransformerWeights> target);
  /// Final-normed hidden states [n, hidden] to logits [n, draft vocab] in the order of the target's
  /// tokens, soft cap included; without a draft vocabulary [n, vocab].
  void logits(Ops& ops, const Tensor& hidden, Tensor& logits) const;
  Tensor logits(Ops& ops, const Tensor& hidden) const;

 private:
  std::shared_ptr<const TransformerWeights> target_;
  Linear rows_;  // undefined: the target's own head
};

}  // namespace specdec
