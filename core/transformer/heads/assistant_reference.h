#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "core/transformer/heads/assistant_head.h"
#include "core/transformer/reference.h"

namespace specdec {

/// An assistant as its checkpoint holds it: what training changes. See AssistantHead.
struct AssistantTensors {
  TransformerTensors weights;
  Tensor pre_projection;   ///< [hidden, 2 * target_hidden]
  Tensor post_projection;  ///< [target_hidden, hidden]
  Tensor centroids;        ///< [clusters, hidden]; undefined = a dense head
  Tensor ordering;         ///< [clusters, vocab / clusters] int64
  int64_t chosen = 0;
  int64_t target_hidden = 0;
};
AssistantTensors unpack(const AssistantHead& head);
std::shared_ptr<AssistantHead> pack(const AssistantTensors& head);

/// What one step of an assistant reads, of T anchors in each row: column t has seen the target's
/// tokens up to t, and drafts at position t + 1.
struct AssistantInputs {
  Tensor embeddings;  ///< [rows, T, target_hidden] of the newest tokens (see reference_embedding)
  Tensor hidden;      ///< [rows, T, target_hidden]: the target's at t, or those of the step before
  const ReferenceResult& target;                    ///< of at least T tokens, with keys and values
  std::optional<at::ScalarType> matmul_dtype = {};  ///< as in reference_forward
};

struct AssistantOutputs {
  Tensor states;  ///< [rows, T, hidden], normed: what the head and the centroids score
  Tensor hidden;  ///< [rows, T, target_hidden] of the next step
};

/// The plain, differentiable step of AssistantModel at all anchors of a text at once, in ATen ops:
/// the path of training. Sliding layers see the newest window + 1 keys up to their anchor.
AssistantOutputs assistant_reference(const AssistantTensors& head, const AssistantInputs& inputs);

}  // namespace specdec
