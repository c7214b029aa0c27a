#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/safetensors.h"
#include "core/transformer/weights.h"

namespace specdec {

/// The tensors of a RecurrentGemma checkpoint under the names that other Gemmas have for the same
/// parts ("temporal_pre_norm" is "input_layernorm"), those of recurrent blocks under their own. Its
/// attention rotates dimensions i and i + rotated / 2 of a head; the rows of q and k are put in the
/// order in which these are i and i + head_dim / 2, as in all other families, which changes no
/// product of a query and a key.
class RecurrentGemmaTensors final : public TensorFiles {
 public:
  /// `plan`: of the layers.
  RecurrentGemmaTensors(std::shared_ptr<const TensorFiles> stored,
                        const std::vector<LayerPlan>& plan);

  const TensorEntry* find(std::string_view name) const override;
  std::vector<const TensorEntry*> tensors() const override;
  void provide(const TensorEntry& entry) const override;
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const override;
  const std::filesystem::path& folder() const override { return stored_->folder(); }
  std::string_view described_by() const override { return stored_->described_by(); }
  std::vector<std::pair<std::string, std::string>> missing() const override;
  std::string stored_name(const std::string& name) const override;

 private:
  struct Part {
    TensorEntry entry;
    const TensorEntry* stored = nullptr;
    bool is_reordered = false;
    std::unique_ptr<std::byte[]> memory = {};  ///< of reordered rows; null until they are made
  };

  std::shared_ptr<const TensorFiles> stored_;
  int64_t head_dim_ = 0;
  int64_t rotated_pairs_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Part, std::less<>> parts_;
};

// The inverse, of what is written.

/// The name in a RecurrentGemma checkpoint of what other Gemmas call `name`.
std::string recurrent_gemma_name(const std::string& name);
/// A layer whose rows of q and k are in the order of such a checkpoint.
LayerTensors in_stored_order(const LayerPlan& plan, const LayerTensors& layer);

}  // namespace specdec
