#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/transformer/plan.h"

namespace specdec {

class JsonKeys;

/// What the `llama3` scaling (Llama 3.1 on) goes by.
struct Llama3Rope {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_positions = 8192.0;
};

/// Divisors [head_dim / 2] of the inverse frequencies: 1 for wave lengths that are short beside the
/// original context, the factor for long ones, in between a blend of both frequencies.
std::vector<double> llama3_divisors(const Llama3Rope& scaling, double theta, int64_t head_dim);

/// Reads a scaling of type llama3; where it does not say the original context, that is
/// `max_positions`.
Llama3Rope read_llama3_rope(const JsonKeys& keys, std::optional<int64_t> max_positions);

/// Refuses a partial_rotary_factor other than 1, naming it.
void refuse_partial_rotation(const JsonKeys& keys);

/// Refuses a rotation for each type of layer, as Gemma 3 has, in the configs of other families.
void refuse_layer_types(const JsonKeys& keys);

/// "rope_type", as older configs "type"; "default" where there is none.
std::string rope_type(const JsonKeys& keys);

/// The rotation of a Llama-shaped config, old style (rope_theta, rope_scaling) or new
/// (rope_parameters); a rope_scaling counts more, and an original_max_position_embeddings beside it
/// more than one within. Throws WeightsError for other types than default, linear and llama3,
/// naming the type, and for rotations by type of layer.
RopeConfig read_llama_rope(const JsonKeys& keys, int64_t head_dim, int64_t max_positions);

/// The rope_parameters (new style) of a rotation that is plain or divided by a factor, which
/// read_llama_rope reads back.
nlohmann::json rope_json(const RopeConfig& rope);

}  // namespace specdec
