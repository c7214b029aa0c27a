#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"

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

}  // namespace specdec
