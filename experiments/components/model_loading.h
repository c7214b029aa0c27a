#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/transformer/transformer_model.h"
#include "experiments/components/format_choice.h"
#include "experiments/components/model_files.h"
#include "experiments/components/model_options.h"

namespace specdec {

/// How a model computes, such as "bfloat16", or "Q5_0, Q8_0, Q4_K, Q6_K, activations int8": the
/// formats of all its matrices, those of most weights first.
std::string format_text(const TransformerWeights& model);
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
