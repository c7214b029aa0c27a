#include "core/transformer/plan.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"

namespace specdec {

bool is_plain(const LayerPlan& layer) {
  return kv_projections(layer) == 2 && !layer.value_norm && !layer.layer_scalar &&
         layer.per_layer_size == 0 && layer.experts.count == 0 && !layer.sparsity_cut &&
         layer.laurel_rank == 0 && layer.altup.streams == 0 && layer.rope.rotated_pairs == 0 &&
         !is_recurrent(layer);
}

std::vector<LayerPlan> select_layers(const std::vector<LayerPlan>& plan,
                                     std::span<const int64_t> layers) {
  std::vector<LayerPlan> selected;
  std::vector<int64_t> place(plan.size(), -1);  // where each layer stood last
  for (const int64_t layer : layers) {
    LayerPlan one = plan.at(static_cast<size_t>(layer));
    if (one.kv_source >= 0) {
      one.kv_source = place[static_cast<size_t>(one.kv_source)];
      SPECDEC_CHECK(one.kv_source >= 0,
                    "layer {} reads keys and values of one that does not stand before it", layer);
    }
    place[static_cast<size_t>(layer)] = std::ssize(selected);
    selected.push_back(std::move(one));
  }
  return selected;
}

double query_scalar(double scale) {
  const double inverse = 1.0 / (scale * scale);
  double candidate = std::round(inverse);
  if (1.0 / std::sqrt(candidate) == scale) {
    return candidate;
  }
  constexpr int kSteps = 16;
  candidate = inverse;
  for (int i = 0; i < kSteps; ++i) {
    candidate = std::nextafter(candidate, 0.0);
  }
  for (int i = 0; i < 2 * kSteps && 1.0 / std::sqrt(candidate) != scale; ++i) {
    candidate = std::nextafter(candidate, std::numeric_limits<double>::infinity());
  }
  return candidate;
}

}  // namespace specdec
