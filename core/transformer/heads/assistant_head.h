#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/kernels/clustered_head.h"
#include "core/language_model.h"
#include "core/transformer/draft_steps.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/layer_runner.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/step_memory.h"
#include "core/transformer/weights.h"

namespace specdec {

/// The head of an assistant that scores tokens of the likeliest clusters only: `chosen` of
/// centroids * z say which, ordering says whose they are.
struct CentroidHead {
  Linear centroids;    ///< [clusters, hidden]; undefined = a dense head
  Tensor ordering;     ///< [clusters, vocab / clusters] int64, the tokens of each cluster
  int64_t chosen = 0;  ///< clusters whose tokens are scored
};

/// Gemma 4's multi-token-prediction drafter: a few layers without keys and values of their own,
/// which read those of the target's last sliding and last full layer that has its own.
///
///   x = pre_projection [embedding of the newest token, hidden state before it]
///   z = norm(layers(x));  logits = head z;  hidden state of the next step = post_projection z
///
/// All steps of a round have one position, the newest committed token's, and see the same keys. The
/// first hidden state is the target's last one, after its final norm.
struct AssistantHead {
  /// The drafter's layers, norm and (tied) head, as those of a model; a layer's kv_source is a
  /// layer of the target.
  TransformerWeights weights;
  Linear pre_projection;   ///< [hidden, 2 * target_hidden]
  Linear post_projection;  ///< [target_hidden, hidden]
  CentroidHead ordered;
  int64_t target_hidden = 0;
};

struct AssistantOptions {
  /// Keys that sliding layers see, the newest ones; 0 = the window + 1, as transformers gives them
  /// after a prefill. A cache that is cut to its window leaves window - 1.
  int64_t sliding_keys = 0;
  CentroidFill fill = CentroidFill::kBelowMinimum;
  /// Target whose embedding drawn tokens have; nullptr = the host draws chains and trees.
  std::shared_ptr<const TransformerWeights> target = nullptr;
  int64_t graphs = 32;  ///< drafts that are kept as graphs, see TransformerOptions::graphs
};

/// The steps of an assistant beside a target. Keeps no state but memory.
class AssistantModel {
 public:
  AssistantModel(std::shared_ptr<const AssistantHead> head, const AssistantOptions& options,
                 std::shared_ptr<Ops> ops = nullptr);

  struct Step {
    Tensor logits;              ///< [n, vocab]
    Tensor hidden;              ///< [n, target_hidden], of the step after it
    ReadBacks read_backs = {};  ///< copies of these two to the host, where they lie
  };
  /// One step of n nodes: embeddings [n, target_hidden] of their tokens as the target's first layer
  /// sees them, and the hidden states [n, target_hidden] before them. Reads the kept keys of a row
  /// of the target, which must not be empty.
  Step step(const Tensor& embeddings, const Tensor& hidden, const Internals& target, int64_t row);
  /// What finds tokens by the logits of device_step; nullptr: the host does.
  std::shared_ptr<DeviceSampler> sampler() const { return ops_->sampler(); }
  /// step() with its results where the weights lie.
  Step device_step(const Tensor& embeddings, const Tensor& hidden, const Internals& target,
                   int64_t row);

  /// Whether draw_chain and draw_tree draft: on a device that samples, where the target's weights
  /// are known.
  bool draws_drafts() const { return options_.target != nullptr && sampler() != nullptr; }
  /// Drafts a chain of steps on the device, the first one of `token` and the hidden state
  /// [1, target_hidden] before it, each later one of the token and the hidden state that the one
  /// before came to; reads it back at once. Nothing where the logits are damaged. As a graph where
  /// the target's keys may be recorded. InternalError where draws_drafts() is false.
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain, Token token, const Tensor& hidden,
                                       const Internals& target, int64_t row);
  /// Drafts a tree as draw_chain does a chain: a step for each level evaluates those of its nodes
  /// that have children, each of its token and the hidden state that its parent came to.
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree, Token token, const Tensor& hidden,
                                     const Internals& target, int64_t row);
  /// How many chains and trees ran as graphs.
  const GraphCounts& graph_counts() const { return graphs_.counts(); }

  const AssistantHead& head() const { return *head_; }
  const AssistantOptions& options() const { return options_; }

 private:
  DeviceSampler& drawing_sampler() const;
  /// Draws a draft that begins with `token` and the hidden state before it.
  void draw(const DraftSteps& steps, Token token, const Tensor& hidden, const Internals& target,
            int64_t row);
  /// What the layers are fed of drafted tokens [n], [n, 2 * target_hidden].
  Tensor enter(Ops& ops, const Tensor& tokens, const Tensor& hidden) const;
  /// The step of nodes that were entered; its results are those of `ops`.
  Step take_step(Ops& ops, const Tensor& entered, const BatchTables& tables,
                 const Internals& target);
  /// What a draft's launches depend on.
  GraphKey draft_key(const DraftSteps& steps, const BatchTables& tables,
                     const Internals& target) const;
  Tensor logits(Ops& ops, const Tensor& states) const;

  std::shared_ptr<const AssistantHead> head_;
  AssistantOptions options_;
  std::shared_ptr<Ops> ops_;
  Workspace workspace_;
  LayerRunner layers_;
  StepMemories step_memories_;
  ForwardGraphs graphs_;    // of drafts
  TokenClusters clusters_;  // of an ordered head
};

/// Random ones for a target of any family: for tests, and where training starts. `layers` of them
/// read the target's last layer of each kind in turn, the last one a full layer's if there is one.
struct AssistantShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t heads = 0;
  int64_t layers = 4;
  int64_t clusters = 0;  ///< 0 = a dense head
  int64_t chosen = 0;
};
std::shared_ptr<AssistantHead> random_assistant(const TransformerInfo& target,
                                                const AssistantShape& shape,
                                                const RandomWeightsOptions& options = {});

/// The target's last layer of the kind, sliding or full, that has its own keys and values; -1 = it
/// has none.
int64_t assistant_source(const std::vector<LayerPlan>& target, bool sliding);

}  // namespace specdec
