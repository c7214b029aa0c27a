#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/device_sampler.h"
#include "core/language_model.h"

namespace specdec {

/// A draft that a device draws step by step: the first step evaluates tokens that are fed, each
/// later one nodes whose tokens were drawn by the logits of the step before. Those of a chain have
/// one node each, those of a tree the nodes of a level that have children. Borrows what it is made
/// of.
struct DraftSteps {
  std::vector<int64_t> sizes;  ///< nodes of each step but the first
  /// What each of these nodes follows: 0 = the last token that is fed, i = number i of them, from
  /// 1. Empty = a chain.
  std::vector<int64_t> parents;
  /// Draws by the logits [k, columns] after a step's nodes: the tokens of the next step, [nodes]
  /// int32 on the device; undefined after the last one.
  std::function<at::Tensor(int64_t step, const at::Tensor& logits)> draw;
  /// Which nodes of the step before those of a step, from 1, follow: [nodes] int32 on the device;
  /// undefined for a chain. It lies where a graph finds that of another draft of the same key.
  std::function<at::Tensor(int64_t step)> parents_in_step;
  /// What these draws depend on beside the logits, the sizes of steps among it, as
  /// ChainDrawing::key; empty = no graph can hold them.
  std::vector<int64_t> key;

  int64_t nodes() const;   ///< of all steps but the first
  int64_t widest() const;  ///< most nodes of one of them, at least 1
  /// Whether a graph may hold a draft that feeds one token: by its key, and as many nodes as have
  /// memory that does not move (ResultMemory).
  bool fits_graph() const;
  /// Number of a step's first node, from 1, as in `parents`; of the step after the last one, the
  /// number of all nodes and 1.
  int64_t first_of(int64_t step) const;
  /// Pending nodes that so many fed tokens and all nodes follow, as a TokenBatch has them, where
  /// nothing else is pending.
  std::vector<int64_t> all_parents(int64_t fed) const;
  /// The nodes of a step, from 1, whose tokens lie on the device, behind all steps before: `fed`,
  /// of one row, is step 0.
  TokenBatch batch(int64_t step, const at::Tensor& tokens, const TokenBatch& fed) const;
};

/// Tokens that are fed in a row, with their inputs.
TokenBatch fed_batch(TokenSpan tokens, const ForwardInputs& inputs, RowId row);

DraftSteps steps_of(ChainDrawing& chain, int64_t count);
/// `parents`: as of a TreeRequest.
DraftSteps steps_of(DraftTreeDrawing& tree, std::span<const int64_t> parents);

/// Logits [k, columns] after the nodes of a step on the device, whose tokens lie there: undefined
/// of step 0. They may lie in the same memory each time.
using StepLogits = std::function<at::Tensor(int64_t step, const at::Tensor& tokens)>;

/// What a head does in a draft before and after the layers of its engine: calls ops only, into
/// memory that does not move.
struct StepSurroundings {
  /// Copies what step 0 is fed beside its tokens to where the graph reads it, before it.
  std::function<void()> place;
  /// What the tokens [k] int32 of a step are fed as.
  std::function<ForwardInputs(int64_t step, const at::Tensor& tokens)> enter;
  /// Logits [k, columns] of what the layers came to, [k, hidden]; of step 0 of its last token.
  std::function<at::Tensor(int64_t step, const at::Tensor& output)> logits;
};

/// Draws one step after the other.
void draw_steps(const DraftSteps& steps, const StepLogits& logits);

/// InternalError where a model draws nothing in a row: it does not draw, or nodes are pending.
void check_may_draw(const LanguageModel& model, RowId row);

/// What LanguageModel::draw_chain and draw_tree leave of a row around `draw`, which returns an
/// optional draft: nothing may be pending before it (InternalError), and nothing is after it where
/// it throws or draws nothing.
template <class Draw>
auto draw_in_row(LanguageModel& model, RowId row, const Draw& draw) {
  check_may_draw(model, row);
  try {
    auto drawn = draw();
    if (!drawn) {
      model.truncate(model.length(row), row);
    }
    return drawn;
  } catch (...) {
    model.truncate(model.length(row), row);
    throw;
  }
}

}  // namespace specdec
