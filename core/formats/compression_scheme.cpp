#include "core/formats/compression_scheme.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/formats/json_keys.h"

namespace specdec {
namespace {

using nlohmann::json;
using Codes = CompressionScheme::Codes;

/// Formats in which weights are stored, and of what type their codes are.
struct CompressionFormat {
  const char* name;
  const char* type;
  Codes codes;
};
constexpr std::array<CompressionFormat, 5> kFormats = {
    {{"pack-quantized", "int", Codes::kPacked},
     {"int-quantized", "int", Codes::kInt8},
     {"float-quantized", "float", Codes::kFloat8},
     {"naive-quantized", "int", Codes::kInt8},
     {"naive-quantized", "float", Codes::kFloat8}}};

Codes codes_of(const JsonKeys& keys, const std::string& format, const std::string& type) {
  for (const CompressionFormat& known : kFormats) {
    if (format == known.name && type == known.type) {
      return known.codes;
    }
  }
  keys.fail("format",
            fmt::format("is '{}' with weights of type '{}', which is not supported; known: "
                        "pack-quantized (int), int-quantized (int), float-quantized "
                        "(float), naive-quantized (both)",
                        format, type));
}

void read_block(const JsonKeys& weights, const char* key, CompressionScheme& scheme) {
  const json& block = weights.at(key);
  const bool is_pair = block.is_array() && block.size() == 2 &&
                       std::all_of(block.begin(), block.end(), [](const json& size) {
                         return size.is_number_unsigned() && size > 0;
                       });
  if (!is_pair) {
    weights.fail(key, fmt::format("is {}, but should be the rows and columns of a block",
                                  describe_json(block)));
  }
  scheme.rows_per_scale = block[0].get<int64_t>();
  scheme.columns_per_scale = block[1].get<int64_t>();
}

/// The parts that share a scale.
void read_strategy(const JsonKeys& weights, CompressionScheme& scheme) {
  const int64_t group = weights.integer("group_size", 0);
  const char* usual = group > 0 ? "group" : group < 0 ? "channel" : "tensor";
  const std::string strategy = weights.text("strategy", usual);
  if (strategy == "channel") {
    scheme.rows_per_scale = 1;
  } else if (strategy == "group") {
    scheme.rows_per_scale = 1;
    scheme.columns_per_scale = weights.positive("group_size");
  } else if (strategy == "block") {
    read_block(weights, "block_structure", scheme);
  } else if (strategy != "tensor") {
    weights.fail("strategy", fmt::format("is '{}', which is not supported; known: tensor, channel, "
                                         "group, block",
                                         strategy));
  }
}

CompressionScheme read_weights(const JsonKeys& keys, const std::string& format,
                               const JsonKeys& weights) {
  CompressionScheme scheme;
  scheme.codes = codes_of(keys, format, weights.text("type", "int"));
  scheme.bits = weights.positive("num_bits");
  const bool packed = scheme.codes == Codes::kPacked;
  if (scheme.bits != 8 && !(packed && scheme.bits == 4)) {
    weights.fail("num_bits", fmt::format("is {}, which is not supported in format {}; known: {}",
                                         scheme.bits, format, packed ? "4, 8" : "8"));
  }
  scheme.symmetric = weights.boolean("symmetric", true);
  read_strategy(weights, scheme);
  if (!scheme.symmetric && (scheme.codes == Codes::kFloat8 || scheme.rows_per_scale != 1)) {
    weights.fail("symmetric",
                 "is false, which is supported for integers with a scale for each row "
                 "or group only");
  }
  return scheme;
}

CompressionScheme read_groups(const JsonKeys& keys) {
  const JsonKeys groups = keys.object("config_groups");
  const std::string format = keys.text("format", "");
  std::optional<CompressionScheme> scheme;
  for (const std::string& name : groups.names()) {
    const JsonKeys group = groups.object(name.c_str());
    const CompressionScheme one =
        read_weights(keys, group.text("format", format), group.object("weights"));
    if (scheme && *scheme != one) {
      keys.fail("config_groups",
                "has groups of layers whose weights are stored differently, which "
                "is not supported");
    }
    scheme = one;
  }
  if (!scheme) {
    keys.fail("config_groups", "is empty");
  }
  return *scheme;
}

/// The method "fp8" of transformers and vLLM: E4M3 with a scale for each block ("weight_scale_inv",
/// as in DeepSeek and Qwen), or for the whole matrix.
CompressionScheme read_fp8(const JsonKeys& keys) {
  CompressionScheme scheme{.codes = Codes::kFloat8};
  if (const std::string type = keys.text("fmt", "e4m3");
      type != "e4m3" && type != "float8_e4m3fn") {
    keys.fail("fmt", fmt::format("is '{}', which is not supported; known: e4m3", type));
  }
  if (keys.has("weight_block_size")) {
    read_block(keys, "weight_block_size", scheme);
  }
  return scheme;
}

CompressionScheme read_compressed_tensors(const JsonKeys& keys) {
  const bool sparse = keys.has("sparsity_config") && !keys.at("sparsity_config").empty();
  if (sparse && keys.object("sparsity_config").text("format", "dense") != "dense") {
    keys.fail("sparsity_config", "says that weights are stored sparsely, which is not supported");
  }
  return read_groups(keys);
}

/// What to do about a method that is known and not supported.
std::string advice(const std::string& method) {
  if (method == "gptq" || method == "awq") {
    return fmt::format(
        "Its tensors (qweight, qzeros, scales) are not read: use the original checkpoint, a GGUF "
        "file, or the same model in compressed-tensors' pack-quantized format, which holds the "
        "groups of {} with all their values",
        method);
  }
  return "Use the original checkpoint or a GGUF file";
}

/// Whether runs of the checkpoint's own round activations.
bool rounds_activations(const JsonKeys& keys) {
  if (!keys.has("config_groups")) {
    return keys.has("activation_scheme");
  }
  const JsonKeys groups = keys.object("config_groups");
  const std::vector<std::string> names = groups.names();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const JsonKeys group = groups.object(name.c_str());
    return group.has("input_activations") || group.has("output_activations");
  });
}

constexpr const char* kConfigKey = "quantization_config";

const char* config_key(const JsonKeys& top) {
  return top.has("compression_config") ? "compression_config" : kConfigKey;
}

}  // namespace

std::vector<std::string> left_out_roundings(const std::string& config, const std::string& where) {
  const json parsed = parse_json_object(config, where);
  const JsonKeys top(parsed, where);
  std::vector<std::string> notes;
  if (!top.has(config_key(top))) {
    return notes;
  }
  const JsonKeys keys = top.object(config_key(top));
  if (rounds_activations(keys)) {
    notes.emplace_back(
        "the weights have the checkpoint's values; the activations, which its own runs round "
        "(input_activations, activation_scheme), stay float32, so logits differ from theirs.");
  }
  if (keys.has("kv_cache_scheme")) {
    notes.emplace_back(
        "kv_cache_scheme is left out: the cache holds keys and values as kv_dtype says and needs "
        "no scales, which belong to a cache of 8 bits.");
  }
  return notes;
}

std::optional<CompressionScheme> parse_compression_scheme(const std::string& config,
                                                          const std::string& where) {
  const json parsed = parse_json_object(config, where);
  const JsonKeys top(parsed, where);
  if (!top.has(config_key(top))) {
    return std::nullopt;
  }
  const JsonKeys keys = top.object(config_key(top));
  const std::string method = keys.text("quant_method", "unknown");
  if (method == "compressed-tensors") {
    return read_compressed_tensors(keys);
  }
  if (method == "fp8") {
    return read_fp8(keys);
  }
  keys.fail("quant_method",
            fmt::format("is '{}', which is not supported; known: compressed-tensors, fp8. {}",
                        method, advice(method)));
}

}  // namespace specdec
