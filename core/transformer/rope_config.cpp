#include "core/transformer/rope_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/formats/json_keys.h"

namespace specdec {
namespace {

constexpr double kTheta = 1e4;

/// `scaling`: an object of `config`.
RopeConfig read_scaling(const JsonKeys& scaling, const JsonKeys& config, int64_t head_dim,
                        int64_t max_positions) {
  refuse_layer_types(scaling);
  refuse_partial_rotation(scaling);
  const double theta = config.positive_number("rope_theta", kTheta);
  RopeConfig rope{.theta = scaling.positive_number("rope_theta", theta)};
  const std::string type = rope_type(scaling);
  if (type == "linear") {
    rope.factor = scaling.positive_number("factor");
  } else if (type == "llama3") {
    Llama3Rope bands = read_llama3_rope(scaling, max_positions);
    bands.original_positions =
        config.positive_number("original_max_position_embeddings", bands.original_positions);
    rope.divisors = llama3_divisors(bands, rope.theta, head_dim);
  } else if (type != "default") {
    scaling.fail("rope_type", fmt::format("is '{}'; supported: default, linear, llama3", type));
  }
  return rope;
}

}  // namespace

std::vector<double> llama3_divisors(const Llama3Rope& scaling, double theta, int64_t head_dim) {
  std::vector<double> divisors;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double frequency =
        std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_dim));
    const double waves = scaling.original_positions * frequency / (2.0 * M_PI);
    const double share =
        (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    if (waves > scaling.high_freq_factor) {
      divisors.push_back(1.0);
    } else if (waves < scaling.low_freq_factor) {
      divisors.push_back(scaling.factor);
    } else {
      divisors.push_back(1.0 / ((1.0 - share) / scaling.factor + share));
    }
  }
  return divisors;
}

Llama3Rope read_llama3_rope(const JsonKeys& keys, std::optional<int64_t> max_positions) {
  Llama3Rope scaling;
  scaling.factor = keys.positive_number("factor");
  scaling.low_freq_factor = keys.positive_number("low_freq_factor", 1.0);
  scaling.high_freq_factor = keys.positive_number("high_freq_factor", 4.0);
  scaling.original_positions =
      keys.positive_number("original_max_position_embeddings", max_positions);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    keys.fail("high_freq_factor", fmt::format("is {}, not above low_freq_factor {}",
                                              scaling.high_freq_factor, scaling.low_freq_factor));
  }
  return scaling;
}

void refuse_layer_types(const JsonKeys& keys) {
  for (const char* type : {"full_attention", "sliding_attention"}) {
    if (keys.has(type)) {
      keys.fail(type,
                "gives layers of this type a rotation of their own; supported: gemma3_text only");
    }
  }
}

void refuse_partial_rotation(const JsonKeys& keys) {
  const double share = keys.number("partial_rotary_factor", 1.0);
  if (share != 1.0) {
    keys.fail("partial_rotary_factor",
              fmt::format("is {}; rotating a part of each head is not supported", share));
  }
}

std::string rope_type(const JsonKeys& keys) {
  return keys.text("rope_type", keys.text("type", "default"));
}

RopeConfig read_llama_rope(const JsonKeys& keys, int64_t head_dim, int64_t max_positions) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (keys.has(key) && !keys.object(key).names().empty()) {
      return read_scaling(keys.object(key), keys, head_dim, max_positions);
    }
  }
  return {.theta = keys.positive_number("rope_theta", kTheta)};
}

nlohmann::json rope_json(const RopeConfig& rope) {
  nlohmann::json out = {{"rope_theta", rope.theta}, {"rope_type", "default"}};
  if (rope.factor != 1.0) {
    out["rope_type"] = "linear";
    out["factor"] = rope.factor;
  }
  return out;
}

}  // namespace specdec
