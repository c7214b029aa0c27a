#include "experiments/components/expert_measurement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <span>

#include "core/draft.h"
#include "core/kernels/route_watch.h"
#include "core/randomness.h"
#include "core/stopwatch.h"
#include "core/transformer/transformer_model.h"
#include "decoders/analysis/quantile.h"

namespace specdec {
namespace {

/// Most tokens of a forward whose experts are counted.
constexpr int64_t kMostTokens = 32;

/// Tokens of one kind of forward, and what it took.
struct ExpertForward {
  std::vector<Token> tokens;
  std::vector<double> seconds = {};
};

std::vector<Token> counted_tokens(int64_t first, int64_t count, int64_t different, int64_t vocab) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<Token>((first + i % different) % vocab));
  }
  return tokens;
}

std::vector<ExpertForward> forwards_of(const std::vector<int64_t>& rows, int64_t vocab) {
  std::vector<ExpertForward> forwards;
  for (const int64_t count : rows) {
    for (const int64_t different : std::set<int64_t>{1, std::min<int64_t>(2, count), count}) {
      forwards.push_back({counted_tokens(3, count, different, vocab)});
    }
  }
  return forwards;
}

double forward_seconds(TransformerModel& model, const std::vector<Token>& tokens) {
  const int64_t context = model.length();
  const Stopwatch stopwatch;
  model.forward({.tokens = token_tensor(tokens)});
  const double seconds = stopwatch.seconds();
  model.truncate(context);
  return seconds;
}

/// Lets all forwards take turns, so that a machine which slows down does so for each.
void time_forwards(TransformerModel& model, const ExpertProfileOptions& options,
                   std::vector<ExpertForward>& forwards) {
  for (int64_t repeat = 0; repeat < options.repeats; ++repeat) {
    for (ExpertForward& forward : forwards) {
      if (options.between) {
        options.between();
      }
      forward.seconds.push_back(forward_seconds(model, forward.tokens));
    }
  }
}

/// Count, chosen and layers; none without experts.
std::optional<ExpertProfile> shape_of(const TransformerWeights& weights) {
  ExpertProfile profile;
  for (const LayerPlan& layer : weights.plan) {
    if (layer.experts.count > 0) {
      profile.count = layer.experts.count;
      profile.chosen = layer.experts.chosen;
      ++profile.layers;
    }
  }
  return profile.layers > 0 ? std::optional(profile) : std::nullopt;
}

/// Forwards of a model with experts that record where each token went.
class RouteRecorder {
 public:
  RouteRecorder(const std::shared_ptr<const TransformerWeights>& weights,
                const KvStoreFactory& store, const ExpertProfile& shape)
      : routes_{.chosen = shape.chosen},
        model_(weights, store,
               {.ops = watched_cpu_ops([this](const Routes& routes) { record(routes); })}) {}

  /// Forgets what was recorded and the model's tokens, but for these.
  void start(const std::vector<Token>& context) {
    model_.truncate(0);
    forward(context);
    model_.commit(chain_path(std::ssize(context)));
    routes_.layers.clear();
  }
  Tensor forward(const std::vector<Token>& tokens) {
    layer_ = 0;
    return model_.forward({.tokens = token_tensor(tokens)}).logits;
  }
  TransformerModel& model() { return model_; }
  const RecordedRoutes& routes() const { return routes_; }

 private:
  void record(const Routes& routes) {
    routes_.layers.resize(std::max(routes_.layers.size(), layer_ + 1));
    const Tensor experts = routes.experts.contiguous();
    const auto* first = experts.const_data_ptr<int32_t>();
    auto& layer = routes_.layers[layer_++];
    layer.insert(layer.end(), first, first + experts.numel());
  }

  RecordedRoutes routes_;
  size_t layer_ = 0;
  TransformerModel model_;
};

/// Tokens 0, 1, 2, ... as measure_cost_curve takes them.
std::vector<double> experts_of_curve(RouteRecorder& recorder, int64_t context) {
  TransformerModel& model = recorder.model();
  recorder.start(counted_tokens(0, context, context, model.vocab_size()));
  const int64_t tokens = std::min(kMostTokens, model.max_length() - context);
  recorder.forward(counted_tokens(0, tokens, tokens, model.vocab_size()));
  return experts_of_prefixes(recorder.routes(), tokens);
}

std::vector<double> experts_of_text(RouteRecorder& recorder, const ExpertProfileOptions& options) {
  TransformerModel& model = recorder.model();
  recorder.start(counted_tokens(3, options.context, 29, model.vocab_size()));
  CounterRandomness randomness(1);
  Token token = 3;
  const int64_t tokens = std::min(options.text, model.max_length() - options.context);
  for (int64_t i = 0; i < tokens; ++i) {
    if (options.between) {
      options.between();
    }
    const Tensor probs =
        at::softmax(recorder.forward({token}).select(0, 0).to(at::kDouble), -1).contiguous();
    model.commit(chain_path(1));
    randomness.seek(options.context + i, Purpose::kSample);
    token = static_cast<Token>(randomness.draw(
        std::span(probs.const_data_ptr<double>(), static_cast<size_t>(probs.numel()))));
  }
  return experts_of_windows(recorder.routes(), kMostTokens);
}

}  // namespace

int64_t distinct_experts(const Routes& routes) {
  const Tensor experts = routes.experts.contiguous();
  const auto* first = experts.const_data_ptr<int32_t>();
  return std::ssize(std::set<int32_t>(first, first + experts.numel()));
}

std::optional<ExpertProfile> measure_experts(
    const std::shared_ptr<const TransformerWeights>& weights, const KvStoreFactory& store,
    const ExpertProfileOptions& options) {
  auto profile = shape_of(*weights);
  if (!profile || !weights->place.device.is_cpu()) {
    return std::nullopt;
  }
  int64_t distinct = 0;
  TransformerModel model(weights, store, {.ops = watched_cpu_ops([&](const Routes& routes) {
                                            distinct += distinct_experts(routes);
                                          })});
  std::vector<int64_t> rows = options.rows;
  std::erase_if(rows, [&](int64_t count) { return options.context + count > model.max_length(); });
  if (rows.empty()) {
    return std::nullopt;
  }
  model.forward(
      {.tokens = token_tensor(counted_tokens(3, options.context, 29, model.vocab_size()))});
  model.commit(chain_path(options.context));
  std::vector<ExpertForward> forwards = forwards_of(rows, model.vocab_size());
  for (const ExpertForward& forward : forwards) {
    distinct = 0;
    forward_seconds(model, forward.tokens);
    profile->samples.push_back(
        {.rows = std::ssize(forward.tokens),
         .distinct = static_cast<double>(distinct) / static_cast<double>(profile->layers)});
  }
  time_forwards(model, options, forwards);
  for (size_t i = 0; i < forwards.size(); ++i) {
    profile->samples[i].seconds = median_of(forwards[i].seconds);
  }
  profile->cost = fit_expert_cost(profile->samples);
  RouteRecorder recorder(weights, store, *profile);
  profile->curve_distinct = experts_of_curve(recorder, options.context);
  profile->text_distinct = experts_of_text(recorder, options);
  return profile;
}

CostCurve curve_of_text(const CostCurve& curve, const std::optional<ExpertProfile>& experts) {
  if (!experts || !experts->cost) {
    return curve;
  }
  const auto counts = [&](const std::vector<double>& recorded) {
    return ExpertCounts{experts->count, experts->chosen, recorded};
  };
  return with_experts(curve, *experts->cost, counts(experts->curve_distinct),
                      counts(experts->text_distinct));
}

}  // namespace specdec
