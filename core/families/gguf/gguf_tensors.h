#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/gguf/gguf.h"
#include "core/formats/safetensors.h"
#include "core/transformer/plan.h"

namespace specdec {

/// The name in GGUF of a tensor that the hub calls `name`; itself where it has none. `post_norms`:
/// of a model whose layers have norms after attention and MLP.
std::string gguf_name(const std::string& name, bool post_norms);

/// The tensors of a GGUF file under the names of the hub. Names that are not known keep their own.
/// A stack is its matrices instead, which lie in its bytes: those of altup_proj, and of experts, of
/// which each has a name that the hub does not know ("model.layers.0.experts.3.down_proj"); the
/// hub's name finds the whole stack, which is not among tensors(). So is attn_qkv: q, k and v.
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
  void add(TensorEntry entry, const std::string& stored);
  /// False where it is none.
  bool add_stack(const TensorEntry& stack, const std::string& stored);
  bool add_fused(const TensorEntry& fused, const std::string& stored,
                 const std::vector<LayerPlan>& plan);

  std::shared_ptr<const GgufFile> file_;
  bool post_norms_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, TensorEntry, std::less<>> stacks_;
  std::map<std::string, std::string> stored_names_;  ///< by the hub's
};

}  // namespace specdec
