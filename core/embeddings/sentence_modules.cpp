#include "core/embeddings/sentence_modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, DenseActivation> kActivations[] = {
    {"Identity", DenseActivation::kIdentity},
    {"Tanh", DenseActivation::kTanh},
    {"ReLU", DenseActivation::kRelu},
    {"GELU", DenseActivation::kGelu},
    {"Sigmoid", DenseActivation::kSigmoid}};

/// The name of a Python class without its modules.
std::string class_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// Values of a JSON file, with errors that name it.
struct ModuleConfig {
  explicit ModuleConfig(const std::filesystem::path& file)
      : parsed(parse_json_object(read_file(file), file.string())), keys(parsed, file.string()) {}
  json parsed;
  JsonKeys keys;
};

/// A key of sentence-transformers' configs before version 5.2, for a kind of pooling.
constexpr std::pair<const char*, Pooling> kPoolingFlags[] = {
    {"pooling_mode_cls_token", Pooling::kCls},
    {"pooling_mode_max_tokens", Pooling::kMax},
    {"pooling_mode_mean_tokens", Pooling::kMean},
    {"pooling_mode_mean_sqrt_len_tokens", Pooling::kMeanSqrtLength},
    {"pooling_mode_weightedmean_tokens", Pooling::kWeightedMean},
    {"pooling_mode_lasttoken", Pooling::kLast}};

Pooling named_pooling(const JsonKeys& keys, const json& name) {
  try {
    return parse_pooling(name.is_string() ? name.get<std::string>() : describe_json(name));
  } catch (const ConfigError& error) {
    keys.fail("pooling_mode", fmt::format("names an {}", error.what()));
  }
}

std::vector<Pooling> read_poolings(const JsonKeys& keys) {
  std::vector<Pooling> all;
  if (keys.has("pooling_mode")) {
    const json& value = keys.at("pooling_mode");
    for (const json& name : value.is_array() ? value : json::array({value})) {
      all.push_back(named_pooling(keys, name));
    }
    if (all.empty()) {
      keys.fail("pooling_mode", "is an empty list; name a pooling, such as \"mean\"");
    }
    return all;
  }
  for (const auto& [key, pooling] : kPoolingFlags) {
    if (keys.boolean(key, false)) {
      all.push_back(pooling);
    }
  }
  return all.empty() ? std::vector<Pooling>{Pooling::kMean} : all;
}

void read_pooling(const std::filesystem::path& folder, SentenceModules& modules) {
  const ModuleConfig config(folder / "config.json");
  modules.pooling = read_poolings(config.keys);
  modules.pools_prompt = config.keys.boolean("include_prompt", true);
}

DenseActivation read_activation(const JsonKeys& keys) {
  const std::string name = keys.text("activation_function", "torch.nn.modules.activation.Tanh");
  std::vector<std::string> known;
  for (const auto& [text, activation] : kActivations) {
    if (class_name(name) == text) {
      return activation;
    }
    known.emplace_back(text);
  }
  keys.fail("activation_function",
            fmt::format("is '{}'; supported: {}", name, fmt::join(known, ", ")));
}

void read_dense(const std::filesystem::path& folder, SentenceModules& modules) {
  const ModuleConfig config(folder / "config.json");
  const JsonKeys& keys = config.keys;
  for (const char* key : {"module_input_name", "module_output_name"}) {
    if (keys.text(key, "sentence_embedding") != "sentence_embedding") {
      keys.fail(key, "is not 'sentence_embedding': projections of tokens are not supported");
    }
  }
  if (keys.boolean("use_residual", false)) {
    keys.fail("use_residual", "is true, which is not supported");
  }
  modules.dense.push_back({.folder = folder,
                           .in = keys.positive("in_features"),
                           .out = keys.positive("out_features"),
                           .bias = keys.boolean("bias", true),
                           .activation = read_activation(keys)});
}

/// A module's folder within that of modules.json.
std::filesystem::path module_folder(const std::filesystem::path& folder, const JsonKeys& keys) {
  const std::string path = keys.text("path", "");
  const std::filesystem::path relative = std::filesystem::path(path).lexically_normal();
  if (relative.is_absolute() || (!path.empty() && *relative.begin() == "..")) {
    keys.fail("path", fmt::format("is '{}', which leads out of the folder", path));
  }
  return path.empty() ? folder : folder / relative;
}

/// Adds a module to those before it.
void add_module(const std::filesystem::path& folder, const JsonKeys& keys, size_t index,
                SentenceModules& modules) {
  const std::string type = class_name(keys.text("type", ""));
  const std::filesystem::path own = module_folder(folder, keys);
  if (index > 0 && own == folder && (type == "Pooling" || type == "Dense")) {
    keys.fail("path", fmt::format("is missing or empty, but a module of type {} has a folder with "
                                  "its config.json",
                                  type));
  }
  if (index == 0 && type == "Transformer") {
    modules.model = own;
  } else if (index == 1 && type == "Pooling") {
    read_pooling(own, modules);
  } else if (index > 1 && type == "Dense" && !modules.normalizes) {
    read_dense(own, modules);
  } else if (index > 1 && type == "Normalize") {
    modules.normalizes = true;
  } else {
    keys.fail("type", fmt::format("is '{}' (module {}); supported: Transformer, then Pooling, then "
                                  "any number of Dense, then Normalize or not",
                                  type, index));
  }
}

void read_modules(const std::filesystem::path& folder, const std::filesystem::path& file,
                  SentenceModules& modules) {
  const json list = parse_strict_json(read_file(file), file.string());
  if (!list.is_array() || list.size() < 2) {
    throw WeightsError(fmt::format(
        "{}: should hold a list of modules, Transformer and Pooling first", file.string()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) {
      throw WeightsError(fmt::format("{}: module {} should be an object", file.string(), i));
    }
    add_module(folder, JsonKeys(list[i], file.string()), i, modules);
  }
}

void read_prompts(const std::filesystem::path& folder, SentenceModules& modules) {
  const auto file = folder / "config_sentence_transformers.json";
  if (!has_entry(file)) {
    return;
  }
  const ModuleConfig config(file);
  if (config.keys.has("prompts")) {
    const JsonKeys prompts = config.keys.object("prompts");
    for (const std::string& task : prompts.names()) {
      modules.prompts[task] = prompts.text(task.c_str(), "");
    }
  }
  if (config.keys.has("default_prompt_name")) {
    const std::string name = config.keys.text("default_prompt_name", "");
    if (modules.prompts.count(name) == 0) {
      config.keys.fail("default_prompt_name", fmt::format("is '{}', which is no prompt", name));
    }
    modules.default_task = name;
  }
  if (config.keys.has("truncate_dim")) {
    modules.dimensions = config.keys.positive("truncate_dim");
  }
}

/// The length that a tokenizer cuts texts to, where a file says one: "none" is a huge number.
void limit_length(const std::filesystem::path& file, const char* key, SentenceModules& modules) {
  if (!has_entry(file)) {
    return;
  }
  const ModuleConfig config(file);
  if (config.keys.boolean("do_lower_case", false)) {
    config.keys.fail("do_lower_case", "is true, which is not supported");
  }
  constexpr double kNoLimit = 1e9;
  if (config.keys.has(key)) {
    const double length = config.keys.positive_number(key);
    if (length != std::floor(length)) {
      config.keys.fail(key, fmt::format("should be a whole number, but is {}", length));
    }
    if (length < kNoLimit) {
      modules.max_length = std::min(modules.max_length, static_cast<int64_t>(length));
    }
  }
}

}  // namespace

const std::string& SentenceModules::prompt(const std::string& task) const {
  const auto found = prompts.find(task);
  if (found != prompts.end()) {
    return found->second;
  }
  std::vector<std::string> known;
  for (const auto& [name, text] : prompts) {
    known.push_back(name);
  }
  throw ConfigError(
      known.empty() ? fmt::format("unknown task '{}': {} has no prompts "
                                  "(config_sentence_transformers.json); give one by --prompt",
                                  task, model.string())
                    : fmt::format("unknown task '{}'; known: {}", task, fmt::join(known, ", ")));
}

SentenceModules read_sentence_modules(const std::filesystem::path& folder) {
  SentenceModules modules;
  modules.model = folder;
  if (!std::filesystem::is_directory(folder)) {
    return modules;
  }
  read_prompts(folder, modules);
  const auto file = folder / "modules.json";
  if (has_entry(file)) {
    read_modules(folder, file, modules);
    limit_length(modules.model / "sentence_bert_config.json", "max_seq_length", modules);
    limit_length(modules.model / "tokenizer_config.json", "model_max_length", modules);
  }
  return modules;
}

}  // namespace specdec
