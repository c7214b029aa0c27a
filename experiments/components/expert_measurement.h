#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/kernels/experts.h"
#include "core/kv_store.h"
#include "core/transformer/weights.h"
#include "decoders/analysis/expert_cost.h"

namespace specdec {

/// Distinct experts among the routes of one layer's tokens.
int64_t distinct_experts(const Routes& routes);

/// What the forwards of a model with experts take, by its tokens and the experts that they wake.
struct ExpertProfile {
  int64_t count = 0;   ///< experts of a layer
  int64_t chosen = 0;  ///< of them by each token
  int64_t layers = 0;  ///< with experts
  std::vector<ExpertSample> samples = {};
  std::optional<ExpertCost> cost = {};  ///< none where times do not tell tokens from experts
  /// [n - 1]: distinct experts of the tokens that cost curves are measured with, and of n
  /// successive tokens of a text that the model wrote at temperature 1.
  std::vector<double> curve_distinct = {}, text_distinct = {};
};

struct ExpertProfileOptions {
  std::vector<int64_t> rows = {1, 2, 4, 8, 16};
  int64_t context = 16;                ///< kept tokens before each forward
  int64_t repeats = 20;                ///< a forward's seconds are the median of so many
  int64_t text = 64;                   ///< tokens whose routes are recorded
  std::function<void()> between = {};  ///< called between forwards; may throw to stop measuring
};

/// Records routes and times of forwards of different tokens, of one token again and again, which
/// wakes fewer experts, and of two in turns, so that the fit can tell tokens from experts. None
/// for models without experts, on other devices than the CPU, and for those whose context is too
/// short.
std::optional<ExpertProfile> measure_experts(
    const std::shared_ptr<const TransformerWeights>& weights, const KvStoreFactory& store,
    const ExpertProfileOptions& options);

/// The cost curve of a text's tokens, which wake other experts than those of a measured curve; the
/// curve itself where nothing is known of experts.
CostCurve curve_of_text(const CostCurve& curve, const std::optional<ExpertProfile>& experts);

}  // namespace specdec
