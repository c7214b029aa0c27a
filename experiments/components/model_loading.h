#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/adapter_choice.h"
#include "experiments/components/cache_choice.h"
#include "experiments/components/format_choice.h"
#include "experiments/components/memory_limit.h"

namespace specdec {

/// What can be known of a checkpoint without its weights.
struct ModelFiles {
  std::filesystem::path folder;
  TransformerConfig config;
  std::vector<LayerPlan> plan;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< nullptr when there is none that can be used
  std::shared_ptr<const OpenModel> open;       ///< its headers, which loading need not read again
  std::string tokenizer_error = {};            ///< why there is a tokenizer that cannot be used
  std::vector<std::string> notes = {};         ///< what a user should know of these files

  /// What to say where a text is needed and `tokenizer` is nullptr: the tokenizer's error, else
  /// `none`.
  const std::string& no_text(const std::string& none) const {
    return tokenizer_error.empty() ? none : tokenizer_error;
  }
};

/// Reads config.json and the tokenizer, and checks the headers of the weights: that all tensors are
/// there which config.json speaks of, with their shapes. Throws WeightsError, but not for a
/// tokenizer that is not supported: by token ids the model can be used.
ModelFiles read_model_files(const std::filesystem::path& folder);

/// Writes a line for each of its notes.
void print_notes(const ModelFiles& files, std::ostream& err);

/// Reads each folder once. A folder that cannot be used throws again at every read.
class ModelCatalog {
 public:
  const ModelFiles& read(const std::filesystem::path& folder);
  /// The same of the first layers alone, as first_layers; 0 = all.
  const ModelFiles& read(const std::filesystem::path& folder, int64_t active_layers);
  /// nullptr for a folder that was not read.
  const ModelFiles* find(const std::filesystem::path& folder) const;

 private:
  std::map<std::string, ModelFiles> files_;
};

/// Why a draft model cannot propose tokens for a target; "" when it can. Compares the tokenizers
/// when both have one: their embeddings may be padded to different numbers of rows. Else compares
/// the sizes of the vocabularies.
std::string vocabulary_mismatch(const ModelFiles& target, const ModelFiles& draft);

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
  bool include_mtp = true;       ///< may load the target's multi-token-prediction modules
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
/// How a model computes, such as "bfloat16", or "Q5_0, Q8_0, Q4_K, Q6_K, activations int8": the
/// formats of all its matrices, those of most weights first.
std::string format_text(const TransformerWeights& model);
/// Throws ConfigError for an unknown device, or one that this build or machine does not have.
at::Device parse_device(const std::string& name);

/// What a device is, such as "NVIDIA H200", for reports; "none" for the CPU, "unknown" when the
/// driver does not say.
std::string gpu_name(const at::Device& device);

/// Loads models and keeps their weights, so that two strategies with the same draft model share
/// them.
class ModelLoader {
 public:
  /// Does not read the headers of models again that `catalog`, which is borrowed, has read; with
  /// their tokenizers known, tokens that only pad the vocabulary are never generated.
  explicit ModelLoader(ModelOptions options, const ModelCatalog* catalog = nullptr);

  /// Of the active layers, in the options' formats or `formats`; a memory limit is of the options'.
  std::shared_ptr<const TransformerWeights> weights(const std::filesystem::path& folder,
                                                    const FormatChoice& formats = {});
  /// A new instance: weights shared by all in the same formats, its own cache, of the options' type
  /// or of `cache`, and adapters. Throws Error for an encoder, which cannot decode.
  std::unique_ptr<TransformerModel> load(const std::filesystem::path& folder,
                                         const std::vector<AdapterChoice>& adapters = {},
                                         const std::optional<CacheChoice>& cache = std::nullopt,
                                         const FormatChoice& formats = {});
  /// Makes a model that was loaded from `folder` run with these adapters instead of its own, each
  /// loaded once. Where they differ its rows are emptied, whose keys and values are those of the
  /// adapters before.
  void set_adapters(TransformerModel& model, const std::filesystem::path& folder,
                    const std::vector<AdapterChoice>& adapters);
  /// An adapter for drafts by layers of the model in `model` (ForwardOptions::draft_adapters), each
  /// loaded once and recorded as a head is.
  std::shared_ptr<const AdapterStack> draft_adapter(const std::filesystem::path& model,
                                                    const AdapterChoice& choice);
  /// Makes the caches of heads and draft models beside the target: of its type, not traced.
  KvStoreFactory kv_store() const;
  const ModelOptions& options() const { return options_; }
  /// Why there are as many threads as there are: asked for, or measured with the first model that
  /// was loaded.
  const std::string& thread_reason() const { return thread_reason_; }
  /// Records the fingerprint of a head that was loaded beside the models.
  void note_fingerprint(const std::string& name, const std::string& fingerprint);
  /// What a user should know of weights that were loaded; what is known already or "" is left out.
  void note_warning(const std::string& warning);
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Folder, as given, with formats that are not the options', to fingerprint of all weights loaded
  /// so far, heads and adapters included.
  std::map<std::string, std::string> fingerprints() const;

 private:
  struct Loaded {
    std::filesystem::path folder;
    std::string formats;  ///< that are not the options', in words
    std::shared_ptr<const TransformerWeights> weights;
  };

  /// `own`: the options of this model, whose formats may not be the loader's.
  std::shared_ptr<const TransformerWeights> read_weights(const std::filesystem::path& folder,
                                                         const ModelOptions& own,
                                                         const LoadOptions& options);
  std::shared_ptr<const LoraAdapter> adapter(const std::filesystem::path& model,
                                             const std::filesystem::path& folder);

  ModelOptions options_;
  const ModelCatalog* catalog_;
  std::map<std::string, Loaded> weights_;                               ///< by folder and formats
  std::map<std::string, std::shared_ptr<const LoraAdapter>> adapters_;  ///< by model and folder
  std::map<std::string, std::shared_ptr<const AdapterStack>> draft_adapters_;  ///< the same
  std::map<std::string, std::string> heads_;
  std::vector<std::string> warnings_;
  std::string thread_reason_;
};

}  // namespace specdec
