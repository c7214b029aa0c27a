#include "core/families/gemma/gemma4_branches.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/formats/json_keys.h"

namespace specdec {
namespace {

using nlohmann::json;

/// First layers of a deeper model that leave out kSparseShare where there is no pattern.
constexpr size_t kSparseLayers = 10;
constexpr double kSparseShare = 0.95;

/// The number of standard deviations above the mean below which a share of a normal distribution
/// lies.
double normal_quantile(double share) {
  return at::special_ndtri(at::scalar_tensor(share, at::kDouble)).item<double>();
}

/// An entry of a list with one for each layer.
const json& of_layer(const JsonKeys& keys, const char* key, int64_t layers, size_t layer) {
  const json& list = keys.at(key);
  if (!list.is_array() || static_cast<int64_t>(list.size()) != layers) {
    keys.fail(key, fmt::format("should be a list of {} numbers", layers));
  }
  return list[layer];
}

}  // namespace

ExpertsPlan read_experts(const JsonKeys& keys) {
  ExpertsPlan experts;
  experts.count = keys.positive("num_experts");
  experts.chosen = keys.positive("top_k_experts");
  experts.intermediate_size = keys.positive("moe_intermediate_size");
  if (experts.chosen > experts.count) {
    keys.fail("top_k_experts", fmt::format("is {}, of {} experts", experts.chosen, experts.count));
  }
  return experts;
}

AltUpConfig read_altup(const JsonKeys& keys) {
  constexpr int64_t kMaxStreams = 8;
  AltUpConfig altup;
  altup.streams = keys.positive("altup_num_inputs", 4);
  altup.active = keys.integer("altup_active_idx", 0);
  altup.correct_scale = keys.boolean("altup_correct_scale", true);
  if (altup.streams < 2 || altup.streams > kMaxStreams) {
    keys.fail("altup_num_inputs",
              fmt::format("is {}; supported: 2 to {}", altup.streams, kMaxStreams));
  }
  if (altup.active < 0 || altup.active >= altup.streams) {
    keys.fail("altup_active_idx", fmt::format("is {}, of {} streams", altup.active, altup.streams));
  }
  return altup;
}

std::optional<double> read_sparsity_cut(const JsonKeys& keys, int64_t layers, size_t layer) {
  if (keys.has("activation_sparsity_z")) {
    const json& deviations = of_layer(keys, "activation_sparsity_z", layers, layer);
    return deviations.is_number() ? std::optional(deviations.get<double>()) : std::nullopt;
  }
  const char* key = "activation_sparsity_pattern";
  if (!keys.has(key)) {
    return layers > static_cast<int64_t>(kSparseLayers) && layer < kSparseLayers
               ? std::optional(normal_quantile(kSparseShare))
               : std::nullopt;
  }
  const json& value = keys.at(key).is_number() ? keys.at(key) : of_layer(keys, key, layers, layer);
  const double share = value.is_number() ? value.get<double>() : -1.0;
  if (share < 0.0 || share >= 1.0) {
    keys.fail(key,
              fmt::format("holds {}; a share is at least 0 and below 1", describe_json(value)));
  }
  return share > 0.0 ? std::optional(normal_quantile(share)) : std::nullopt;
}

}  // namespace specdec
