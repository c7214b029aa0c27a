#include "experiments/components/layer_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/draft.h"
#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/transformer_model.h"

namespace specdec {
namespace {

/// Vocabulary of the models that hold a few layers: embedding and head take nearly no time.
constexpr int64_t kSmallVocab = 256;

/// What a layer's time depends on.
LayerPlan timed_part(LayerPlan plan) {
  plan.per_layer_index = 0;
  plan.kv_source = std::min<int64_t>(plan.kv_source, 0);
  return plan;
}

/// `copies` layers of a kind, after the layer whose keys and values they read, if they do.
std::vector<int64_t> layers_of(const ModelDescription& model, const LayerKind& kind,
                               int64_t copies) {
  std::vector<int64_t> layers;
  if (const int64_t source = model.plan[static_cast<size_t>(kind.first)].kv_source; source >= 0) {
    layers.push_back(source);
  }
  layers.insert(layers.end(), static_cast<size_t>(copies), kind.first);
  return layers;
}

std::unique_ptr<TransformerModel> make_model(const ModelDescription& model,
                                             const KvStoreFactory& store,
                                             const LayerProfileOptions& options) {
  int64_t longest = 2;
  for (const int64_t context : options.curve.contexts) {
    for (const int64_t width : options.curve.new_tokens) {
      longest = std::max(longest, context + width);
    }
  }
  const int64_t max_length = std::min(longest, model.config.max_position_embeddings);
  return std::make_unique<TransformerModel>(random_weights(model, options.load), store,
                                            TransformerOptions{.max_length = max_length});
}

/// Number of layers of a kind that are timed together, by weights that hold one of them.
int64_t copies_of(const TransformerWeights& weights, const LayerKind& kind,
                  const LayerProfileOptions& options) {
  int64_t bytes = 0;
  visit_forward_matrices(weights, [&](const Linear& matrix) { bytes += matrix.bytes(); });
  const int64_t wanted = options.least_bytes / std::max<int64_t>(1, forward_bytes(weights));
  const int64_t most = options.most_bytes / (2 * std::max<int64_t>(1, bytes));
  return std::clamp<int64_t>(std::min(wanted, most), 1, kind.count);
}

/// The times of one number of tokens, by turns.
struct TimedWidth {
  Tensor tokens;
  std::vector<double> seconds = {};
};

/// v(n) of a model, less that of another one where there is one, divided by `parts`.
CostCurve timed_difference(TransformerModel& model, TransformerModel* less, int64_t parts,
                           const CostCurveOptions& options) {
  const auto seconds_of = [&](TransformerModel& timed, const Tensor& tokens) {
    if (options.between) {
      options.between();
    }
    return time_forward(timed, tokens);
  };
  CostCurve curve;
  for (const int64_t context : options.contexts) {
    std::vector<TimedWidth> widths;
    for (const int64_t width : options.new_tokens) {
      if (context + width <= model.max_length()) {
        widths.push_back({timed_tokens(width, model.vocab_size())});
      }
    }
    for (TransformerModel* timed : {&model, less}) {
      if (timed != nullptr && !widths.empty()) {
        timed->truncate(0);
        timed->forward({.tokens = timed_tokens(context, timed->vocab_size())},
                       {.logits = Logits::kNone});
        timed->commit(chain_path(context));
      }
    }
    for (int64_t repeat = -1; repeat < options.repeats; ++repeat) {  // the first one warms up
      for (TimedWidth& width : widths) {
        const double whole = seconds_of(model, width.tokens);
        const double part = less == nullptr ? 0.0 : seconds_of(*less, width.tokens);
        if (repeat >= 0) {
          width.seconds.push_back((whole - part) / static_cast<double>(parts));
        }
      }
    }
    for (TimedWidth& width : widths) {
      curve.points.push_back(cost_point(width.tokens.size(0), context, std::move(width.seconds)));
    }
  }
  return curve;
}

/// sum += factor * curve, point by point.
void add(const CostCurve& curve, double factor, CostCurve& sum) {
  SPECDEC_CHECK(curve.points.size() == sum.points.size(), "curves of {} and {} points",
                curve.points.size(), sum.points.size());
  for (size_t i = 0; i < curve.points.size(); ++i) {
    sum.points[i].seconds += factor * curve.points[i].seconds;
    sum.points[i].low += factor * curve.points[i].low;
    sum.points[i].high += factor * curve.points[i].high;
  }
}

/// Raises what is below to kUnseenSeconds, and notes it.
void keep_positive(CostCurve& curve, const std::string& what, std::vector<std::string>& notes) {
  for (CostPoint& point : curve.points) {
    if (point.seconds < kUnseenSeconds) {
      notes.push_back(fmt::format(
          "{} took too little to be told from noise in forwards of {} tokens after {}: the machine "
          "is too busy, --repeats are too few, or the layers too small",
          what, point.new_tokens, point.context));
    }
    point.seconds = std::max(point.seconds, kUnseenSeconds);
    point.low = std::clamp(point.low, 0.0, point.seconds);
    point.high = std::max(point.high, point.seconds);
  }
}

}  // namespace

std::vector<LayerKind> layer_kinds(const std::vector<LayerPlan>& plan) {
  std::vector<LayerKind> kinds;
  for (size_t layer = 0; layer < plan.size(); ++layer) {
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const LayerKind& kind) {
      return timed_part(plan[static_cast<size_t>(kind.first)]) == timed_part(plan[layer]);
    });
    if (same == kinds.end()) {
      kinds.push_back({.first = static_cast<int64_t>(layer), .count = 1});
    } else {
      ++same->count;
    }
  }
  return kinds;
}

ModelDescription with_layers(const ModelDescription& whole, std::span<const int64_t> layers,
                             int64_t vocab) {
  ModelDescription model = whole;
  model.plan = select_layers(whole.plan, layers);
  for (size_t layer = 0; layer < model.plan.size(); ++layer) {
    model.plan[layer].per_layer_index = static_cast<int64_t>(layer);
  }
  model.config.num_layers = std::ssize(model.plan);
  model.config.vocab_size = vocab;
  if (model.config.per_layer_count > 0) {
    model.config.per_layer_count = model.config.num_layers;
    // Looking up rows takes the same time in a small table.
    model.config.per_layer_vocab = std::min(model.config.per_layer_vocab, kSmallVocab);
  }
  model.config.suppressed_ids.clear();
  return model;
}

LayerProfile measure_by_layer(const ModelDescription& model, const KvStoreFactory& store,
                              const LayerProfileOptions& options) {
  LayerProfile profile;
  std::vector<int64_t> beside_head;  // the layers that embedding and head are timed with
  for (const LayerKind& kind : layer_kinds(model.plan)) {
    const auto make = [&](int64_t copies) {
      return make_model(with_layers(model, layers_of(model, kind, copies), kSmallVocab), store,
                        options);
    };
    auto few = make(1);
    const int64_t bytes = forward_bytes(few->weights()) / std::ssize(few->weights().layers);
    const int64_t copies = copies_of(few->weights(), kind, options);
    few = copies == 1 ? std::move(few) : make(copies);
    const auto many = make(2 * copies);
    profile.kinds.push_back(
        {kind, bytes, timed_difference(*many, few.get(), copies, options.curve)});
    const std::string name = fmt::format("layer {}", kind.first);
    keep_positive(profile.kinds.back().curve, name, profile.notes);
    options.measured(fmt::format("{}, of {} alike", name, kind.count));
    if (beside_head.empty()) {
      beside_head = layers_of(model, kind, copies);
    }
  }
  const auto with_head =
      make_model(with_layers(model, beside_head, model.config.vocab_size), store, options);
  profile.rest = timed_difference(*with_head, nullptr, 1, options.curve);
  add(profile.kinds.front().curve, -static_cast<double>(beside_head.size()), profile.rest);
  keep_positive(profile.rest, "what stands beside the layers", profile.notes);
  options.measured("embedding and head");
  profile.whole = profile.rest;
  for (const LayerKindCost& cost : profile.kinds) {
    add(cost.curve, static_cast<double>(cost.kind.count), profile.whole);
  }
  return profile;
}

std::vector<PredictedSpeed> predict_speed(const CostCurve& curve, int64_t context,
                                          std::span<const double> acceptance, double draft_cost) {
  std::vector<PredictedSpeed> predicted;
  const double plain = curve.seconds(1, context);
  double reached = 1.0;
  double tokens = 1.0;
  for (size_t i = 0; i < acceptance.size(); ++i) {
    reached *= acceptance[i];
    tokens += reached;
    const auto length = static_cast<int64_t>(i) + 1;
    const double step =
        curve.seconds(1 + length, context) + static_cast<double>(length) * draft_cost * plain;
    predicted.push_back({length, tokens, tokens * plain / step});
  }
  return predicted;
}

}  // namespace specdec
