#include "core/embeddings/pooling.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

constexpr std::pair<const char*, Pooling> kPoolings[] = {
    {"mean", Pooling::kMean},
    {"last", Pooling::kLast},
    {"max", Pooling::kMax},
    {"cls", Pooling::kCls},
    {"mean_sqrt_len_tokens", Pooling::kMeanSqrtLength},
    {"weightedmean", Pooling::kWeightedMean}};

/// The weights are those of the tokens' places in the whole text.
Tensor weighted_mean(const Tensor& counted, int64_t skipped) {
  const Tensor weights =
      at::arange(skipped + 1, skipped + counted.size(0) + 1, counted.options()).unsqueeze(1);
  return (counted * weights).sum(0) / weights.sum();
}

}  // namespace

Pooling parse_pooling(const std::string& name) {
  std::string known;
  for (const auto& [text, pooling] : kPoolings) {
    if (name == text || (pooling == Pooling::kLast && name == "lasttoken")) {
      return pooling;
    }
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw ConfigError(fmt::format("unknown pooling '{}'; known: {}", name, known));
}

std::string pooling_name(Pooling pooling) {
  for (const auto& [text, value] : kPoolings) {
    if (value == pooling) {
      return text;
    }
  }
  return "";
}

Tensor pool_states(const Tensor& states, Pooling pooling, int64_t skipped) {
  SPECDEC_CHECK(states.dim() == 2 && skipped >= 0 && skipped < states.size(0),
                "pool: {} of the states are skipped", skipped);
  const Tensor counted = states.narrow(0, skipped, states.size(0) - skipped);
  switch (pooling) {
    case Pooling::kLast:
      return counted.select(0, counted.size(0) - 1);
    case Pooling::kMax:
      return std::get<0>(counted.max(0));
    case Pooling::kCls:
      return counted.select(0, 0);
    case Pooling::kMeanSqrtLength:
      return counted.sum(0) / std::sqrt(static_cast<double>(counted.size(0)));
    case Pooling::kWeightedMean:
      return weighted_mean(counted, skipped);
    case Pooling::kMean:
      break;
  }
  return counted.mean(0);
}

}  // namespace specdec
