#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/dtype.h"
#include "core/formats/tensor_file.h"

namespace specdec {

/// One .safetensors file. The constructor checks the whole header (length, JSON, names, dtypes,
/// shapes, offsets that neither overlap nor leave the file nor leave holes) and throws WeightsError
/// naming file and tensor.
class SafetensorsFile final : public TensorFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
};

/// The tensors of a checkpoint, in whatever format, under the names of the hub.
class TensorFiles {
 public:
  virtual ~TensorFiles() = default;
  /// The tensor of this name; nullptr when there is none.
  virtual const TensorEntry* find(std::string_view name) const = 0;
  virtual std::vector<const TensorEntry*> tensors() const = 0;
  /// Makes the bytes of a tensor whose file holds them in another form, which is empty till then.
  virtual void provide(const TensorEntry& /*entry*/) const {}
  /// Gives the pages of a tensor that has been copied, or of `size` bytes of it, back to the
  /// system; bytes that were made are gone when all of them are released at once.
  virtual void release(const TensorEntry& entry, size_t begin = 0,
                       size_t size = SIZE_MAX) const = 0;
  /// What the files say beside their tensors, of all of them together.
  virtual const std::map<std::string, std::string>& metadata() const;
  /// The folder or file, as messages name it.
  virtual const std::filesystem::path& folder() const = 0;
  /// What says which tensors there should be.
  virtual std::string_view described_by() const { return "config.json"; }
  /// Tensors that an index promises and no file holds, each with the file that should.
  virtual std::vector<std::pair<std::string, std::string>> missing() const { return {}; }
  /// A tensor's name in the file.
  virtual std::string stored_name(const std::string& name) const { return name; }
};

/// The weights of a checkpoint folder: model.safetensors, or the shards that
/// model.safetensors.index.json names (no tensor may be in another shard than the index says); in a
/// folder without safetensors pytorch_model.bin, or the shards of its index.
class CheckpointTensors final : public TensorFiles {
 public:
  /// Throws WeightsError: no such folder, neither file present, an index that does not fit.
  explicit CheckpointTensors(const std::filesystem::path& folder);
  /// The tensors of one file of the folder.
  CheckpointTensors(const std::filesystem::path& folder, const std::string& file);

  const TensorEntry* find(std::string_view name) const override;
  /// All tensors of all shards.
  std::vector<const TensorEntry*> tensors() const override;
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const override;
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::pair<std::string, std::string>> missing() const override { return missing_; }

 private:
  void open(const std::filesystem::path& path);

  std::filesystem::path folder_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::unique_ptr<const TensorFile>> files_;
  std::vector<std::pair<std::string, std::string>> missing_;
};

/// A tensor to be written; `bytes` is row-major and borrowed.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes a .safetensors file whole or not at all (to a temporary name, then renamed), tensors of
/// wider elements first, each aligned. Throws Error when the disk is full or the folder not
/// writable.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace specdec
