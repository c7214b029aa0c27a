#pragma once
#include <string>

#include "core/families/gguf/gguf_keys.h"
#include "core/formats/json_keys.h"

namespace specdec {

/// The value of general.architecture of Gemma 4's drafters.
inline constexpr const char* kAssistantArchitecture = "gemma4-assistant";

/// The config.json, a flat text config, that says what a GGUF file of architecture gemma4 says
/// (dense, E, MoE and unified models alike) or gemma4-assistant, as type gemma4_text. Layers with
/// other heads than the first sliding one are in per_layer_config; layers whose values are their
/// raw keys are the full ones (attention_k_eq_v) or, where those are others, in `raw_value_layers`,
/// a key of our own. Throws WeightsError naming file and key or tensor.
std::string gemma4_config_json(const GgufKeys& keys);

/// The config.json of type gemma3n_text that says the same as a file of architecture gemma3n.
/// `activation_sparsity_z`, a key of our own, has for each layer the number of standard deviations
/// above the mean at which its gate is cut, or null: the file holds these and not the fractions of
/// activation_sparsity_pattern.
std::string gemma3n_config_json(const GgufKeys& keys);

/// What the file calls the keys of all three.
KeyNames gemma4_key_names(const GgufKeys& keys);

}  // namespace specdec
