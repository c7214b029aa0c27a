#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/families/description.h"
#include "core/kv_store.h"
#include "core/transformer/weights.h"
#include "decoders/analysis/cost_curve.h"

namespace specdec {

/// Layers of a model that differ in nothing that takes time.
struct LayerKind {
  int64_t first = 0;  ///< the first layer of this kind
  int64_t count = 0;  ///< layers of this kind
};

/// The kinds of layers of a plan, by their first layer, ascending.
std::vector<LayerKind> layer_kinds(const std::vector<LayerPlan>& plan);

/// The description of a model with `layers` of another one's, in this order, each as often as it is
/// named, and a vocabulary of `vocab` tokens. InternalError where a layer stands before that whose
/// keys and values it reads.
ModelDescription with_layers(const ModelDescription& whole, std::span<const int64_t> layers,
                             int64_t vocab);

/// What the layers of one kind take.
struct LayerKindCost {
  LayerKind kind;
  int64_t bytes = 0;  ///< of the matrices that a forward of one token reads, of one layer
  CostCurve curve;    ///< seconds of one layer
};

/// Seconds of what seemed to take none.
constexpr double kUnseenSeconds = 1e-9;

/// A model's v(n), put together from its parts.
struct LayerProfile {
  std::vector<LayerKindCost> kinds;
  CostCurve
      rest;  ///< all but the layers: embedding, final norm, head and what a forward begins with
  CostCurve whole;  ///< rest + count * layer, over all kinds
  /// What took too little time to be told from noise, a line each: it counts as kUnseenSeconds.
  std::vector<std::string> notes = {};
};

struct LayerProfileOptions {
  CostCurveOptions curve;
  LoadOptions load;
  /// Weights that a forward of a timed model reads, at least: where a few layers stay in a cache
  /// that the whole model would not fit in, they are repeated until they do not.
  int64_t least_bytes = int64_t{512} << 20;
  /// But no more than this, all experts included, where one layer does not take more by itself.
  int64_t most_bytes = int64_t{8} << 30;
  /// Called with the name of each kind of layer that has been measured, and of what stands beside.
  std::function<void(const std::string&)> measured = [](const std::string&) {};
};

/// Times models of random weights that hold a few layers of one kind at their full shape, and twice
/// as many: the difference is what these layers take. All that a timed model needs in memory is
/// those layers, or the embedding and head. Both models take turns, forward by forward. Where a
/// machine is so busy, or layers are so small, that they seem to take no time, `notes` say so.
LayerProfile measure_by_layer(const ModelDescription& model, const KvStoreFactory& store,
                              const LayerProfileOptions& options);

/// A length of draft and what it is worth by measured costs and an assumed acceptance.
struct PredictedSpeed {
  int64_t length = 0;
  double tokens = 0.0;    ///< committed in a step: 1 + a_1 + a_1 a_2 + ... (Leviathan et al., 2023)
  double speed_up = 0.0;  ///< over plain decoding
};

/// Predicted speeds of drafts of 1 token, 2, ... as many as `acceptance` has entries: acceptance[i]
/// is the probability that drafted token i is accepted once those before it are. A drafted token
/// costs `draft_cost` forwards of one token. `context`: as CostCurve::seconds takes it.
std::vector<PredictedSpeed> predict_speed(const CostCurve& curve, int64_t context,
                                          std::span<const double> acceptance, double draft_cost);

}  // namespace specdec
