#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/families/convert/model_tensors.h"
#include "core/families/description.h"
#include "core/formats/tensor_layout.h"
#include "core/tokenizers/tokenizer_files.h"
#include "core/transformer/adapters/module_updates.h"
#include "core/transformer/tensor_source.h"

namespace specdec {

struct ConvertOptions {
  /// Dtype of the matrices: F32, F16, BF16, or in GGUF Q8_0. None = each as stored; blocks become
  /// F32.
  std::optional<DType> dtype = {};
  bool tokenizer = true;  ///< false leaves it out
  bool replace = false;   ///< an output that is there
  /// What adapters add to the input's matrices; each sum is rounded once, to the dtype of the file.
  std::map<std::string, ModuleUpdate> updates = {};
};

/// What a conversion makes.
struct ConversionSummary {
  std::string family;
  DType dtype = DType::kF32;  ///< of the matrices; F32 where they have several
  int64_t tensors = 0;
  uint64_t bytes = 0;              ///< of the weights
  std::vector<std::string> notes;  ///< what the user should know of the result
};

/// Converts a model of any known family between a Hugging Face folder (config.json, safetensors,
/// tokenizer.json) and a GGUF file: an output that ends in ".gguf" is one, any other a folder. The
/// output appears whole or not at all. Tensors are the same bit for bit where the dtype is, with
/// one exception: GGUF's norms of Gemma have 1 added, which rounds them. Vectors are never rounded
/// to the dtype: those that it cannot hold stay F32, in GGUF all.
class ModelConverter {
 public:
  /// Reads and checks all but the weights' values. Throws WeightsError for a model that cannot be
  /// converted (unknown family, missing tensor, a tokenizer or a plan that the other format cannot
  /// hold: it is read back and compared; an update of a module that it does not write), and
  /// ConfigError for options and places that make no sense, or not enough room on the disk.
  ModelConverter(std::filesystem::path input, std::filesystem::path output,
                 const ConvertOptions& options);

  const ConversionSummary& summary() const { return summary_; }
  /// `on_tensor` is told of every tensor that is written, and may throw to stop.
  void write(const std::function<void(const std::string& tensor)>& on_tensor);

 private:
  using WriteBytes = std::function<void(std::span<const std::byte>)>;

  void open_input();
  void choose_dtype(std::optional<DType> wanted);
  void plan_tensors();
  void check_updates() const;
  void read_tokenizer(bool wanted);
  DType dtype_of(const ModelTensor& tensor);
  /// The tensor's rows from `first` on with what the adapters add.
  at::Tensor updated(const ModelTensor& tensor, int64_t first, const at::Tensor& rows) const;
  at::Tensor read_whole(const ModelTensor& tensor);
  void write_tensor(const ModelTensor& tensor, DType dtype, const WriteBytes& write);
  void write_gguf(const std::function<void(const std::string&)>& on_tensor);
  void write_folder(const std::function<void(const std::string&)>& on_tensor);
  GgufEntries entries(std::vector<std::string>& notes) const;
  std::vector<float> rope_frequencies() const;
  std::vector<TensorLayout> gguf_layouts() const;
  /// Reads back what would be written, before anything is: throws WeightsError where it would be
  /// another model.
  void check_plan();
  ModelDescription described_by_gguf();
  ModelDescription described_by_config() const;
  void check_room() const;

  std::filesystem::path input_, output_;
  std::map<std::string, ModuleUpdate> updates_;
  bool to_gguf_;
  bool as_stored_ = false;  ///< each matrix keeps its dtype
  ModelDescription model_;
  std::unique_ptr<TensorSource> source_;
  std::vector<ModelTensor> tensors_;
  std::vector<TensorLayout> layouts_;  ///< of tensors_, under the output's names
  double norm_change_ = 0.0;           ///< added to stored norms
  std::optional<TokenizerFiles> tokenizer_;
  ConversionSummary summary_;
};

}  // namespace specdec
