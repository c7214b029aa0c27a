#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/safetensors.h"

namespace specdec {

/// Tensors of one's own instead of a checkpoint's files: made by a program, or the bytes of
/// .safetensors files that are in memory. What is added is read by load_model as a folder's are.
class MemoryTensors final : public TensorFiles {
 public:
  /// `name` stands in messages where a folder's path would.
  explicit MemoryTensors(std::string name) : name_(std::move(name)) {}

  /// Adds a tensor under the name that the hub gives it ("model.norm.weight"). The bytes are not
  /// copied: `owner` keeps them, else the caller does, until these tensors and all weights that
  /// were loaded from them are gone (a table of per-layer embeddings is read in place). Throws
  /// WeightsError naming the tensor: no name, a name that is taken, a negative dimension, rows that
  /// are no whole blocks, more or fewer bytes than dtype and shape say.
  void add(TensorEntry tensor, std::shared_ptr<const void> owner = nullptr);
  /// Adds all tensors of a .safetensors file; call it for each shard. Errors name `where` too.
  void add_safetensors(std::span<const std::byte> file, const std::string& where,
                       const std::shared_ptr<const void>& owner = nullptr);

  const TensorEntry* find(std::string_view name) const override;
  std::vector<const TensorEntry*> tensors() const override;
  /// Gives nothing back: the bytes are their owner's.
  void release(const TensorEntry& /*entry*/, size_t /*begin*/, size_t /*size*/) const override {}
  const std::filesystem::path& folder() const override { return name_; }

 private:
  [[noreturn]] void fail(const TensorEntry& tensor, const std::string& problem) const;

  std::filesystem::path name_;
  std::map<std::string, TensorEntry, std::less<>> tensors_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace specdec
