#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/gguf.h"
#include "core/formats/safetensors.h"
#include "core/transformer/plan.h"

namespace specdec {

/// The name in GGUF of a tensor that the hub calls `name`; itself where it has none. `post_norms`:
/// of a model whose layers have norms after attention and MLP.
std::string gguf_name(const std::string& name, bool post_norms);

/// The tensors of a GGUF file under the names of the hub. Names that are not known keep their own.
class GgufTensors final : public TensorFiles {
 public:
  /// `plan`: of the file's layers; says which norms they have and how llama.cpp has interleaved the
  /// rows of q and k. Throws WeightsError for two tensors that are the same part of the model.
  GgufTensors(std::shared_ptr<const GgufFile> file, const std::vector<LayerPlan>& plan);

  const TensorEntry* find(std::string_view name) const override;
  std::vector<const TensorEntry*> tensors() const override;
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const override;
  const std::filesystem::path& folder() const override { return file_->path(); }
  std::string_view described_by() const override { return "its metadata"; }
  std::string stored_name(const std::string& name) const override;

 private:
  std::shared_ptr<const GgufFile> file_;
  bool post_norms_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> stored_names_;  ///< by the hub's
};

}  // namespace specdec
