#include "core/transformer/adapters/lora_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

/// Keys that change what an adapter computes where they are set.
constexpr const char* kUnsupportedKeys[] = {
    "fan_in_fan_out",    "lora_bias",         "modules_to_save",         "trainable_token_indices",
    "target_parameters", "layer_replication", "alora_invocation_tokens", "megatron_config",
    "arrow_config",      "kasa_config",       "monteclora_config",       "velora_config"};

/// Beginnings of init_lora_weights after which the base is no longer the released one.
constexpr const char* kBaseChanges[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

bool begins_with(const std::string& text, const std::string& begin) {
  return text.rfind(begin, 0) == 0;
}

bool is_set(const nlohmann::json& value) {
  return !value.is_null() && value != false && !(value.is_structured() && value.empty());
}

bool matches(const std::string& pattern, const std::string& path) {
  return std::regex_match(path, std::regex(pattern));
}

/// Whether a path ends with a pattern as PEFT looks for it.
bool ends_with_pattern(const std::string& path, const std::string& pattern) {
  return matches("(?:.*\\.)?(?:" + pattern + ")", path);
}

void check_pattern(const std::string& pattern, const std::string& key, const std::string& where) {
  try {
    (void)std::regex(pattern);
  } catch (const std::regex_error&) {
    throw WeightsError(fmt::format(
        "{}: {}: the regular expression '{}' cannot be read: it is broken, or beyond ECMAScript's "
        "(such as (?i) or a named group). List the modules' names instead.",
        where, key, pattern));
  }
}

void check_type(const JsonKeys& keys) {
  if (const std::string type = keys.text("peft_type", "LORA"); type != "LORA") {
    keys.fail("peft_type", fmt::format("is '{}', but only LORA adapters are supported", type));
  }
  if (const std::string bias = keys.text("bias", "none"); bias != "none") {
    keys.fail("bias", fmt::format("is '{}': adapters with trained biases are not supported, only "
                                  "'none'. Merge it into its base with peft's merge_and_unload",
                                  bias));
  }
}

/// Refuses what would be left out silently otherwise.
void check_supported(const JsonKeys& keys) {
  for (const std::string& key : keys.names()) {
    const bool variant = begins_with(key, "use_") && key != "use_rslora";
    const auto* known = std::find(std::begin(kUnsupportedKeys), std::end(kUnsupportedKeys), key);
    if ((variant || known != std::end(kUnsupportedKeys)) && keys.has(key.c_str()) &&
        is_set(keys.at(key.c_str()))) {
      keys.fail(key, fmt::format("is {}, which is not supported. Merge the adapter into its base "
                                 "with peft's merge_and_unload, and load that model",
                                 describe_json(keys.at(key.c_str()))));
    }
  }
}

void check_initialisation(const JsonKeys& keys) {
  if (!keys.has("init_lora_weights") || !keys.at("init_lora_weights").is_string()) {
    return;
  }
  const auto name = keys.at("init_lora_weights").get<std::string>();
  for (const char* change : kBaseChanges) {
    if (begins_with(name, change)) {
      keys.fail("init_lora_weights",
                fmt::format("is '{}': training changed the base's weights too, which the released "
                            "base does not have. Save the adapter converted to plain LoRA (peft: "
                            "path_initial_model_for_weight_conversion)",
                            name));
    }
  }
}

template <class T>
std::map<std::string, T> read_pattern(const JsonKeys& keys, const char* key,
                                      const std::string& where) {
  std::map<std::string, T> pattern;
  if (!keys.has(key)) {
    return pattern;
  }
  const JsonKeys entries = keys.object(key);
  for (const std::string& name : entries.names()) {
    check_pattern(name, key, where);
    if constexpr (std::is_same_v<T, int64_t>) {
      pattern[name] = entries.positive(name.c_str());
    } else {
      pattern[name] = entries.number(name.c_str());
    }
  }
  return pattern;
}

/// layers_to_transform, of the modules list that the text models here call "layers".
std::vector<int64_t> read_layers(const JsonKeys& keys) {
  if (!keys.has("layers_to_transform")) {
    return {};
  }
  if (keys.has("layers_pattern")) {
    const nlohmann::json& pattern = keys.at("layers_pattern");
    if (is_set(pattern) && pattern != "" && pattern != "layers" &&
        pattern != nlohmann::json::array({"layers"})) {
      keys.fail("layers_pattern", fmt::format("is {}, but the layers of the models that are read "
                                              "here are called 'layers'",
                                              pattern.dump()));
    }
  }
  const nlohmann::json& value = keys.at("layers_to_transform");
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  std::vector<int64_t> layers;
  for (const auto& layer : list) {
    if (!layer.is_number_integer() || layer.get<int64_t>() < 0) {
      keys.fail("layers_to_transform", "should be a layer's number, or a list of them");
    }
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

/// The value of the patterns that fit a path; those that fit should agree.
template <class T>
T find_pattern(const std::map<std::string, T>& patterns, const std::string& path, T fallback,
               const LoraConfig& config) {
  const std::string* found = nullptr;
  T value = fallback;
  for (const auto& [pattern, its_value] : patterns) {
    if (!ends_with_pattern(path, pattern)) {
      continue;
    }
    if (found != nullptr && its_value != value) {
      throw WeightsError(fmt::format("{}: the patterns '{}' and '{}' both fit {}, with {} and {}",
                                     config.where, *found, pattern, path, value, its_value));
    }
    found = &pattern;
    value = its_value;
  }
  return value;
}

}  // namespace

ModuleNames::ModuleNames(const nlohmann::json& value, const std::string& key,
                         const std::string& where) {
  if (value.is_string()) {
    pattern_ = value.get<std::string>();
    all_ = pattern_ == "all-linear";
    check_pattern(pattern_, key, where);
    return;
  }
  const bool is_list =
      value.is_array() && std::all_of(value.begin(), value.end(),
                                      [](const nlohmann::json& name) { return name.is_string(); });
  if (!is_list) {
    throw WeightsError(
        fmt::format("{}: {} should be a list of modules' names or a regular expression, but is {}",
                    where, key, describe_json(value)));
  }
  endings_ = value.get<std::vector<std::string>>();
}

bool ModuleNames::contains(const std::string& path) const {
  if (all_) {
    return path.find("lm_head") == std::string::npos;
  }
  if (!pattern_.empty()) {
    return matches(pattern_, path);
  }
  return std::any_of(endings_.begin(), endings_.end(), [&path](const std::string& ending) {
    return path == ending ||
           (path.size() > ending.size() + 1 &&
            path.compare(path.size() - ending.size() - 1, std::string::npos, "." + ending) == 0);
  });
}

bool LoraConfig::adapts(const std::string& path, int64_t layer) const {
  const bool has_layer =
      layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end();
  return has_layer && targets.contains(path) && !excluded.contains(path);
}

int64_t LoraConfig::rank_of(const std::string& path) const {
  return find_pattern(rank_pattern, path, rank, *this);
}

double LoraConfig::factor_of(const std::string& path) const {
  const auto its_rank = static_cast<double>(rank_of(path));
  return find_pattern(alpha_pattern, path, alpha, *this) /
         (rank_stabilised ? std::sqrt(its_rank) : its_rank);
}

LoraConfig parse_lora_config(const std::string& text, const std::string& where) {
  const nlohmann::json parsed = parse_json_object(text, where);
  const JsonKeys keys(parsed, where);
  check_type(keys);
  check_supported(keys);
  check_initialisation(keys);
  LoraConfig config;
  config.where = where;
  config.base = keys.text("base_model_name_or_path", "");
  config.rank = keys.positive("r");
  config.alpha = keys.number("lora_alpha");
  config.rank_stabilised = keys.boolean("use_rslora", false);
  config.rank_pattern = read_pattern<int64_t>(keys, "rank_pattern", where);
  config.alpha_pattern = read_pattern<double>(keys, "alpha_pattern", where);
  config.targets = ModuleNames(keys.at("target_modules"), "target_modules", where);
  if (keys.has("exclude_modules")) {
    config.excluded = ModuleNames(keys.at("exclude_modules"), "exclude_modules", where);
  }
  config.layers = read_layers(keys);
  return config;
}

LoraConfig load_lora_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "adapter_config.json";
  std::error_code code;
  if (!std::filesystem::exists(file, code)) {
    throw WeightsError(
        fmt::format("{}: it holds no adapter_config.json. Name a folder that peft's "
                    "save_pretrained wrote: a LoRA adapter.",
                    folder.string()));
  }
  return parse_lora_config(read_file(file), file.string());
}

}  // namespace specdec
