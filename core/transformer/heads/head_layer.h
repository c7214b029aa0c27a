#pragma once
#include <memory>
#include <vector>

#include "core/transformer/random_weights.h"
#include "core/transformer/reference.h"
#include "core/transformer/transformer_model.h"
#include "core/transformer/weights.h"

namespace specdec {

/// A decoder layer of a head that lives on a target; most heads have one.
struct HeadLayer {
  LayerPlan plan;
  LayerTensors weights;
  double rms_norm_eps = 1e-6;
};

/// A target's layer without what is_plain rules out (keys of another layer, experts, per-layer
/// inputs, streams): what the layer of a new head is modelled on.
LayerPlan head_layer_plan(LayerPlan target);

/// The cached engine that runs some layers: takes ForwardInputs::embeddings and gives the last
/// one's output as final_hidden; it has no logits.
std::unique_ptr<TransformerModel> make_layer_engine(const std::vector<HeadLayer>& layers,
                                                    const TransformerWeights& target,
                                                    const KvStoreFactory& store,
                                                    const TransformerOptions& options);
/// The layer's tensors, for an optimiser.
std::vector<Tensor*> parameters(HeadLayer& layer);
/// How reference_layer runs it beside a target.
LayerReference layer_reference(const HeadLayer& layer, const TransformerInfo& target,
                               std::optional<at::ScalarType> matmul_dtype = std::nullopt);

}  // namespace specdec
