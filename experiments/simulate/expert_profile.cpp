#include "experiments/simulate/expert_profile.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "core/draft.h"
#include "core/kernels/route_watch.h"
#include "core/transformer/transformer_model.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

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
  const auto start = std::chrono::steady_clock::now();
  model.forward({.tokens = token_tensor(tokens)});
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  model.truncate(context);
  return time.count();
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

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
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
  return profile;
}

void print_experts(std::ostream& out, const ExpertProfile& profile) {
  out << fmt::format("\nexperts: {} of {} a token, {} layers; milliseconds of a forward",
                     profile.chosen, profile.count, profile.layers);
  if (const auto& cost = profile.cost) {
    out << fmt::format(" = {:.3f} + {:.4f} tokens + {:.4f} distinct experts (error {:.1f} %)\n",
                       1e3 * cost->fixed, 1e3 * cost->per_row, 1e3 * cost->per_expert,
                       100.0 * cost->error);
  } else {
    out << ": no fit, its times do not tell tokens from experts\n";
  }
  std::vector<Cells> rows = {{"new tokens", "distinct", "if independent", "measured", "fitted"}};
  for (const ExpertSample& sample : profile.samples) {
    const auto tokens = static_cast<double>(sample.rows);
    rows.push_back(
        {fmt::format("{}", sample.rows), fmt::format("{:.1f}", sample.distinct),
         fmt::format("{:.1f}", independent_experts(profile.count, profile.chosen, tokens)),
         fmt::format("{:.3f}", 1e3 * sample.seconds),
         profile.cost ? fmt::format("{:.3f}", 1e3 * profile.cost->seconds(tokens, sample.distinct))
                      : "-"});
  }
  write_aligned(out, rows, 0);
}

Json experts_json(const ExpertProfile& profile) {
  Json samples = Json::array();
  for (const ExpertSample& sample : profile.samples) {
    samples.push_back(
        {{"new_tokens", sample.rows}, {"distinct", sample.distinct}, {"seconds", sample.seconds}});
  }
  Json json = {{"count", profile.count},
               {"chosen", profile.chosen},
               {"layers", profile.layers},
               {"samples", std::move(samples)},
               {"cost", nullptr}};
  if (const auto& cost = profile.cost) {
    json["cost"] = {{"fixed_seconds", cost->fixed},
                    {"token_seconds", cost->per_row},
                    {"expert_seconds", cost->per_expert},
                    {"relative_error", cost->error}};
  }
  return json;
}

}  // namespace specdec
