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

namespace specdec {

/// Element types that checkpoints use, by their names in safetensors headers.
enum class DType { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

/// Bytes of one element.
int64_t dtype_bytes(DType dtype);
/// "F32", "BF16", ...
std::string_view dtype_name(DType dtype);

/// A tensor in a file: its description, and where its bytes lie.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  /// Row-major, in the mapped file; lives as long as the reader. A file need not align it to the
  /// element size.
  std::span<const std::byte> bytes;
};

/// One .safetensors file, memory-mapped. The constructor checks the whole header (length, JSON,
/// names, dtypes, shapes, offsets that neither overlap nor leave the file nor leave holes) and
/// throws WeightsError naming file and tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// In the order of the data.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  /// The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// nullptr when there is none of this name.
  const TensorEntry* find(std::string_view name) const;
  /// True for an entry of tensors(), not for a copy of one.
  bool holds(const TensorEntry& entry) const;
  /// Gives the pages of a tensor that has been copied, or of `size` bytes of it, back to the
  /// system.
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const;

 private:
  std::filesystem::path path_;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::vector<TensorEntry> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_
  std::map<std::string, std::string> metadata_;
};

/// The weights of a checkpoint folder: model.safetensors, or the shards that
/// model.safetensors.index.json names (each tensor must be in the shard that the index says).
class CheckpointTensors {
 public:
  /// Throws WeightsError: no such folder, neither file present, an index that does not fit.
  explicit CheckpointTensors(const std::filesystem::path& folder);
  /// Those of one file of the folder instead.
  CheckpointTensors(const std::filesystem::path& folder, const std::string& file);

  const TensorEntry* find(std::string_view name) const;
  /// All tensors of all shards.
  std::vector<const TensorEntry*> tensors() const;
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
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
