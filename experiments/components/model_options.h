#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/families/model.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/adapter_choice.h"
#include "experiments/components/cache_choice.h"
#include "experiments/components/memory_limit.h"

namespace specdec {

/// A checkpoint of which fewer layers are active than it holds.
struct ActiveLayers {
  std::filesystem::path model = {};
  int64_t count = 0;  ///< the first ones; 0 = all
};

/// How models of a run are loaded.
struct ModelOptions {
  std::string dtype;             ///< "" = as stored
  std::string activations = {};  ///< "" = float32
  std::string kv_dtype = {};     ///< of the key/value cache; "" = float32, or the weights' float64
  std::string device = "cpu";    ///< "cpu", "cuda", "cuda:1"
  int64_t max_length = 0;        ///< 0 = the config's, at most 8192
  CacheChoice cache = {};        ///< of the model and of heads and draft models beside it
  bool include_mtp = true;       ///< drafters may load the target's multi-token-prediction modules
  bool suppresses = true;        ///< never generates the checkpoint's suppress_tokens
  int64_t threads = 0;           ///< that were asked for; 0 = measured when a model is loaded
  int64_t prefill_threads = 0;   ///< see TransformerOptions
  int64_t cuda_graphs = TransformerOptions{}.graphs;  ///< see TransformerOptions::graphs
  int64_t prefill_graphs = TransformerOptions{}.prefill_graphs;
  bool library_products = false;            ///< of requests; prefill_products: library
  std::string thread_reason = "asked for";  ///< by whom, where `threads` is not 0
  bool random_weights = false;  ///< of the shape that config.json says, for timings; none are read
  std::vector<AdapterChoice> adapters = {};  ///< of the target alone, see ModelLoader::load
  MemoryLimit memory = {};                   ///< of weights
  ActiveLayers active_layers = {};           ///< wherever the run uses this checkpoint
};

/// A text that differs between options that load other models, or evaluate them in another way;
/// threads and adapters, which are chosen for a loaded model, have no part in it.
std::string loading_key(const ModelOptions& options);
/// Tokens of prompt and output that a model takes which is loaded so.
int64_t max_length_of(const ModelOptions& options, const TransformerConfig& config);

/// "float32", "float64", "bfloat16", "float16", "int8" (kChar: WeightFormat::kInt8); nullopt for
/// "stored" and "". Throws ConfigError for others.
std::optional<at::ScalarType> parse_dtype(const std::string& name);
/// "float32" (or ""), "int8". Throws ConfigError for others.
ActivationFormat parse_activations(const std::string& name);
/// Throws ConfigError where the dtype that was asked for has no blocks, which int8 activations
/// need.
void check_activations(const ModelOptions& options);
/// Throws ConfigError where weights that stay as they are have no such blocks, by their headers.
void check_activations(const ModelOptions& options, const OpenModel& model);
/// Both, for a model that no config names: what they throw begins with the model and the option.
void check_activations_of(const std::filesystem::path& folder, const ModelOptions& options,
                          const OpenModel& model);
/// Throws ConfigError where the dtype or activations that were asked for are not for the device.
void check_device(const ModelOptions& options);
/// True for "library"; false for "exact" or "". Throws ConfigError for others, and for a device or
/// dtype that has none.
bool parse_prefill_products(const std::string& name, const ModelOptions& options);
/// "float32", "bfloat16"; "" = kNative. Throws ConfigError for others.
KvFormat parse_kv_dtype(const std::string& name);
/// The format of keys and values, by kv_dtype or by the cache's format. Throws ConfigError where
/// both are given.
KvFormat kv_format_of(const ModelOptions& options);
/// How weights are loaded with these options. Throws ConfigError as parse_dtype, parse_device and
/// parse_activations do.
LoadOptions load_options(const ModelOptions& options);

}  // namespace specdec
