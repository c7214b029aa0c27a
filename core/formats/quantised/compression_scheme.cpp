#include "core/formats/quantised/compression_scheme.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/quantised/bitsandbytes.h"
#include "core/formats/quantised/column_packed.h"
#include "core/formats/quantised/mlx_matrix.h"
#include "core/formats/quantised/torchao_matrix.h"

namespace specdec {
namespace {

using nlohmann::json;
using Codes = CompressionScheme::Codes;
using WholeScale = CompressionScheme::WholeScale;

/// Formats in which weights are stored, and of what type their codes are.
struct CompressionFormat {
  const char* name;
  const char* type;
  Codes codes;
};
constexpr const char* kNvfp4 = "nvfp4-pack-quantized";
constexpr const char* kMxfp4 = "mxfp4-pack-quantized";
constexpr std::array<CompressionFormat, 7> kFormats = {
    {{"pack-quantized", "int", Codes::kPacked},
     {kNvfp4, "float", Codes::kFloat4},
     {kMxfp4, "float", Codes::kFloat4},
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
                        "(float), naive-quantized (both), nvfp4-pack-quantized (float), "
                        "mxfp4-pack-quantized (float)",
                        format, type));
}

void read_block(const JsonKeys& weights, const char* key, CompressionScheme& scheme) {
  constexpr uint64_t kLargestBlock = uint64_t{1} << 24;
  const json& block = weights.at(key);
  const bool is_pair = block.is_array() && block.size() == 2 &&
                       std::all_of(block.begin(), block.end(), [](const json& size) {
                         return size.is_number_unsigned() && size > 0 && size <= kLargestBlock;
                       });
  if (!is_pair) {
    weights.fail(key, fmt::format("is {}, but should be the rows and columns of a block, two whole "
                                  "numbers in 1 to {}",
                                  describe_json(block), kLargestBlock));
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
  } else if (strategy == "group" ||
             (strategy == "tensor_group" && scheme.whole_scale != WholeScale::kNone)) {
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

/// Floats of 4 bits, in groups along the rows.
CompressionScheme read_float4(const JsonKeys& weights, WholeScale whole_scale) {
  CompressionScheme scheme{.codes = Codes::kFloat4, .whole_scale = whole_scale, .bits = 4};
  if (const int64_t bits = weights.integer("num_bits", 4); bits != 4) {
    weights.fail("num_bits", fmt::format("is {}; the floats of this format have 4", bits));
  }
  if (!weights.boolean("symmetric", true)) {
    weights.fail("symmetric", "is false, which floats cannot be");
  }
  read_strategy(weights, scheme);
  if (scheme.rows_per_scale != 1 || scheme.columns_per_scale == 0) {
    weights.fail("strategy", "gives no scale to each group of a row, as this format has");
  }
  return scheme;
}

CompressionScheme read_weights(const JsonKeys& keys, const std::string& format,
                               const JsonKeys& weights) {
  CompressionScheme scheme;
  scheme.codes = codes_of(keys, format, weights.text("type", "int"));
  scheme.bits = weights.positive("num_bits");
  const bool packed = scheme.codes == Codes::kPacked;
  if (scheme.codes == Codes::kFloat4) {
    return read_float4(weights, format == kNvfp4 ? WholeScale::kDivides : WholeScale::kNone);
  }
  // Codes of other numbers of bits fill words whole or not, by the release of the library.
  if (scheme.bits != 8 && !(packed && (scheme.bits == 2 || scheme.bits == 4))) {
    weights.fail("num_bits", fmt::format("is {}, which is not supported in format {}; known: {}",
                                         scheme.bits, format, packed ? "2, 4, 8" : "8"));
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

std::vector<ModulePattern> read_targets(const JsonKeys& group) {
  std::vector<ModulePattern> targets;
  if (!group.has("targets")) {
    return targets;
  }
  const json& list = group.at("targets");
  for (const json& target : list.is_array() ? list : json::array({list})) {
    if (!target.is_string()) {
      group.fail("targets", fmt::format("should be a list of strings, but one of them is {}",
                                        describe_json(target)));
    }
    try {
      targets.emplace_back(target.get<std::string>());
    } catch (const Error& error) {
      group.fail("targets", error.what());
    }
  }
  return targets;
}

CompressionSchemes read_groups(const JsonKeys& keys) {
  const JsonKeys groups = keys.object("config_groups");
  const std::string format = keys.text("format", "");
  std::vector<CompressionSchemes::Group> all;
  for (const std::string& name : groups.names()) {
    const JsonKeys group = groups.object(name.c_str());
    if (group.contains("weights") && !group.has("weights")) {
      continue;  // rounds activations alone
    }
    const JsonKeys& format_keys = group.has("format") ? group : keys;
    all.push_back({read_targets(group), read_weights(format_keys, group.text("format", format),
                                                     group.object("weights"))});
  }
  if (all.empty()) {
    keys.fail("config_groups", "is empty");
  }
  return CompressionSchemes(std::move(all));
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

CompressionSchemes read_compressed_tensors(const JsonKeys& keys) {
  const bool sparse = keys.has("sparsity_config") && !keys.at("sparsity_config").empty();
  if (sparse && keys.object("sparsity_config").text("format", "dense") != "dense") {
    keys.fail("sparsity_config", "says that weights are stored sparsely, which is not supported");
  }
  return read_groups(keys);
}

/// The method "modelopt" of NVIDIA's Model Optimizer; of its algorithms FP8, with one scale a
/// matrix, and NVFP4.
CompressionScheme read_modelopt(const JsonKeys& keys) {
  const std::string algorithm = keys.text("quant_algo", "unknown");
  if (algorithm == "NVFP4") {
    return {.codes = Codes::kFloat4,
            .whole_scale = WholeScale::kMultiplies,
            .bits = 4,
            .rows_per_scale = 1,
            .columns_per_scale = keys.has("group_size") ? keys.positive("group_size") : 16};
  }
  if (algorithm != "FP8") {
    keys.fail("quant_algo",
              fmt::format("is '{}', which is not supported; known: FP8, NVFP4", algorithm));
  }
  return {.codes = Codes::kFloat8};
}

/// Whether runs of the checkpoint's own round activations.
bool rounds_activations(const JsonKeys& keys) {
  if (rounds_torchao_activations(keys)) {
    return true;
  }
  if (!keys.has("config_groups")) {
    return keys.has("activation_scheme") || keys.boolean("load_in_8bit", false);
  }
  const JsonKeys groups = keys.object("config_groups");
  const std::vector<std::string> names = groups.names();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const JsonKeys group = groups.object(name.c_str());
    return group.has("input_activations") || group.has("output_activations");
  });
}

/// The object that says how weights are stored, that of a wrapped text model too; none without one.
std::optional<JsonKeys> compression_keys(const JsonKeys& top) {
  if (is_mlx_config(top)) {
    return top.object("quantization");
  }
  for (const char* key : {"compression_config", "quantization_config"}) {
    if (top.has(key)) {
      return top.object(key);
    }
  }
  return top.has("text_config") ? compression_keys(top.object("text_config")) : std::nullopt;
}

}  // namespace

CompressionSchemes::CompressionSchemes(std::vector<Group> groups) : groups_(std::move(groups)) {
  SPECDEC_CHECK(!groups_.empty(), "no scheme");
  const bool all_alike = std::all_of(groups_.begin(), groups_.end(), [this](const Group& group) {
    return group.scheme == groups_.front().scheme;
  });
  for (size_t i = 0; i < groups_.size() && !all_alike; ++i) {
    for (const ModulePattern& target : groups_[i].targets) {
      targets_.push_back({target, i});
    }
  }
  std::stable_sort(targets_.begin(), targets_.end(), [](const Target& a, const Target& b) {
    return std::forward_as_tuple(a.pattern.is_expression(), a.pattern.text()) <
           std::forward_as_tuple(b.pattern.is_expression(), b.pattern.text());
  });
  groups_.resize(all_alike ? 1 : groups_.size(), groups_.front());
}

const CompressionScheme* CompressionSchemes::find(std::string_view module) const {
  if (groups_.size() == 1) {
    return &groups_.front().scheme;
  }
  for (const auto& has : {&ModulePattern::has_name, &ModulePattern::has_class}) {
    for (const Target& target : targets_) {
      if ((target.pattern.*has)(module)) {
        return &groups_[target.group].scheme;
      }
    }
  }
  return nullptr;
}

std::vector<std::string> CompressionSchemes::names() const {
  std::vector<std::string> names;
  for (const Target& target : targets_) {
    if (!target.pattern.is_expression()) {
      names.push_back(target.pattern.text());
    }
  }
  return names;
}

bool CompressionSchemes::operator==(const CompressionSchemes& other) const {
  return std::equal(groups_.begin(), groups_.end(), other.groups_.begin(), other.groups_.end(),
                    [](const Group& a, const Group& b) { return a.scheme == b.scheme; });
}

std::vector<std::string> left_out_roundings(const std::string& config, const std::string& where) {
  const json parsed = parse_json_object(config, where);
  const JsonKeys top(parsed, where);
  std::vector<std::string> notes;
  const auto keys = compression_keys(top);
  if (!keys) {
    return notes;
  }
  if (rounds_activations(*keys)) {
    notes.emplace_back(kRoundedActivations);
  }
  if (keys->has("kv_cache_scheme")) {
    notes.emplace_back(
        "kv_cache_scheme is left out: the cache holds keys and values as kv_dtype says and needs "
        "no scales, which belong to a cache of 8 bits.");
  }
  return notes;
}

namespace {

/// A method and what reads it.
struct QuantisationMethod {
  const char* name;
  CompressionSchemes (*read)(const JsonKeys& keys);
};
constexpr const char* kMlxMethod = "mlx";  // which its files do not name
const std::array<QuantisationMethod, 8> kMethods = {
    {{"compressed-tensors", read_compressed_tensors},
     {"fp8", [](const JsonKeys& keys) -> CompressionSchemes { return read_fp8(keys); }},
     {"modelopt", [](const JsonKeys& keys) -> CompressionSchemes { return read_modelopt(keys); }},
     {"gptq", [](const JsonKeys& keys) -> CompressionSchemes { return read_gptq(keys); }},
     {"awq", [](const JsonKeys& keys) -> CompressionSchemes { return read_awq(keys); }},
     {"bitsandbytes",
      [](const JsonKeys& keys) -> CompressionSchemes { return read_bitsandbytes(keys); }},
     {"torchao", read_torchao},
     {kMlxMethod, read_mlx}}};

const QuantisationMethod* find_method(const std::string& name) {
  const auto* found = std::find_if(kMethods.begin(), kMethods.end(),
                                   [&](const QuantisationMethod& m) { return m.name == name; });
  return found == kMethods.end() ? nullptr : found;
}

CompressionSchemes read_method(const JsonKeys& keys, const std::string& name) {
  if (const QuantisationMethod* method = find_method(name)) {
    return method->read(keys);
  }
  keys.fail("quant_method",
            fmt::format("is '{}', which is not supported; known: "
                        "compressed-tensors, fp8, modelopt, gptq, awq, bitsandbytes, "
                        "torchao. Use the original checkpoint or a GGUF file",
                        name));
}

}  // namespace

std::string quantisation_method(const JsonKeys& keys) {
  return keys.text("quant_method",
                   keys.has("bits") || keys.has("group_size") ? kMlxMethod : "unknown");
}

bool is_known_quantisation(const std::string& method) { return find_method(method) != nullptr; }

std::optional<CompressionSchemes> parse_compression(const std::string& config,
                                                    const std::string& where) {
  const json parsed = parse_json_object(config, where);
  const auto keys = compression_keys(JsonKeys(parsed, where));
  return keys ? std::optional(read_method(*keys, quantisation_method(*keys))) : std::nullopt;
}

CompressionSchemes parse_quantize_config(const std::string& config, const std::string& where) {
  const json parsed = parse_json_object(config, where);
  const JsonKeys keys(parsed, where);
  return read_method(keys, keys.text("quant_method", "gptq"));
}

}  // namespace specdec
