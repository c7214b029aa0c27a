#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/embeddings/pooling.h"

namespace specdec {

/// What is applied to each output of a projection.
enum class DenseActivation { kIdentity, kTanh, kRelu, kGelu, kSigmoid };

/// A projection of embeddings, in a folder of its own beside the model's files.
struct DenseModule {
  std::filesystem::path folder;
  int64_t in = 0, out = 0;
  bool bias = false;
  DenseActivation activation = DenseActivation::kTanh;
};

/// What a folder of sentence-transformers says beside its model (modules.json,
/// config_sentence_transformers.json and the files that these name).
struct SentenceModules {
  std::filesystem::path model;                 ///< the folder of config.json and weights
  std::vector<Pooling> pooling;                ///< whose vectors are put one after the other
  bool pools_prompt = true;                    ///< false: tokens of the prompt are not pooled
  std::vector<DenseModule> dense;              ///< in their order
  bool normalizes = false;                     ///< the last module is Normalize
  int64_t dimensions = 0;                      ///< embeddings are cut to so many; 0 = all
  std::map<std::string, std::string> prompts;  ///< by task
  std::optional<std::string> default_task;
  int64_t max_length = std::numeric_limits<int64_t>::max();  ///< tokens of a text

  /// The prompt of a task. Throws ConfigError for one that is unknown, naming those that are known.
  const std::string& prompt(const std::string& task) const;
};

/// Reads the modules of a folder; one without modules.json has only prompts, if any. Throws
/// WeightsError naming file and key: modules of other kinds or in another order (known:
/// Transformer, Pooling, Dense, Normalize), files that are missing or damaged, sizes that do not
/// fit.
SentenceModules read_sentence_modules(const std::filesystem::path& folder);

}  // namespace specdec
