#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/formats/atomic_file.h"
#include "core/formats/direct_file.h"
#include "core/hash.h"
#include "core/transformer/paging/layer_store.h"
#include "core/transformer/weights.h"

namespace specdec {

/// What a layer file has to have been made of to be read.
struct LayerFileKey {
  std::string model;  ///< says which weights these are, in which formats, and how they lie
  std::vector<int64_t> layer_bytes;  ///< of each layer, see stored_layer_bytes
};

/// Names of the model that the layers belong to, see TransformerInfo.
struct LayerFileNames {
  std::string fingerprint, weights_fingerprint;
};

/// Writes a model's layers as they lie in memory, one after another. The file appears whole or not
/// at all; a full disk is an Error.
class LayerFileWriter {
 public:
  /// Throws Error where `path` is a file of another kind, which is not overwritten.
  LayerFileWriter(const std::filesystem::path& path, LayerFileKey key);
  /// The next layer.
  void add(const LayerWeights& layer);
  void finish(const LayerFileNames& names);

 private:
  void put(std::span<const std::byte> bytes);
  void pad(int64_t alignment);

  LayerFileKey key_;
  AtomicFile file_;
  int64_t written_ = 0;
  uint64_t checksum_ = kHashStart;  ///< of the layer's bytes
  std::vector<uint64_t> checksums_;
};

/// The layers of a file that LayerFileWriter has written, read past the page cache, so that they
/// take the memory of their buffers only (DirectFile). Bytes are compared with their checksum when
/// a layer is read for the first time.
class LayerFile final : public LayerStore {
 public:
  /// Opens a layer file; nullptr where there is none, or one that was cut off, damaged in its table
  /// or made of something else: write it again. Throws Error for a file that cannot be read or is
  /// of another kind.
  static std::unique_ptr<LayerFile> open(const std::filesystem::path& path,
                                         const LayerFileKey& key);
  const LayerFileNames& names() const { return names_; }
  int64_t layers() const override { return static_cast<int64_t>(layers_.size()); }
  int64_t bytes(int64_t layer) const override;
  void read(int64_t layer, std::span<std::byte> memory) override;

 private:
  struct Layer {
    int64_t offset, bytes;
    uint64_t checksum;
    bool is_checked = false;
  };
  LayerFile(std::filesystem::path path, int descriptor);
  /// False where it does not fit the key.
  bool read_table(const std::string& table, const LayerFileKey& key);

  std::filesystem::path path_;
  DirectFile file_;
  LayerFileNames names_;
  std::vector<Layer> layers_;
};

}  // namespace specdec
