#pragma once
#include <nlohmann/json_fwd.hpp>

#include "core/transformer/heads/eagle_config.h"

namespace specdec {

class JsonKeys;

// The part of a head's config.json that describes its layer.

/// Whether norms surround the branches, and the activation is Gemma's.
bool is_gemma(LayerStyle style);
/// What the style says of norms and of what attention reads, into the plan.
void apply_style(EagleConfig& config);

/// Reads style, plan, hidden size and soft cap for a head whose version is known;
/// `may_be_several`: of the layers, which are one otherwise. Throws
/// WeightsError naming the key.
void read_eagle_layer(const JsonKeys& layer, bool may_be_several, EagleConfig& config);
/// Writes what read_eagle_layer reads.
void write_eagle_layer(const EagleConfig& config, nlohmann::json& out);

}  // namespace specdec
