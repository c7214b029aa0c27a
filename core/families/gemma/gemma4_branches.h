#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/transformer/plan.h"

namespace specdec {

class JsonKeys;

// What a text config of Gemma 3n or 4 says of branches that other Gemmas have not. Each throws
// WeightsError naming the key.

/// Gemma 4's experts: num_experts, top_k_experts, moe_intermediate_size.
ExpertsPlan read_experts(const JsonKeys& keys);
/// Gemma 3n's streams: altup_num_inputs, altup_active_idx, altup_correct_scale.
AltUpConfig read_altup(const JsonKeys& keys);
/// Where the gate of one of `layers` is cut: activation_sparsity_pattern, a share for all layers or
/// one for each, or activation_sparsity_z (see parse_gemma4_config).
std::optional<double> read_sparsity_cut(const JsonKeys& keys, int64_t layers, size_t layer);

}  // namespace specdec
