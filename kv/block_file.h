#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/page_file.h"

namespace specdec {

/// A block of neighbouring pages of a layer, which move together. A run is blocks of a layer, one
/// after another.
struct BlockPlace {
  int64_t layer;
  int64_t block;
};

/// What a PageTiers moves.
struct TieredPages {
  /// Bytes of a page of each layer's keys, and of its values; 0 = the layer has none of its own.
  std::vector<int64_t> page_bytes = {};
  std::vector<int64_t> pages_per_block = {};  ///< of each layer
  int64_t capacity = 0;                       ///< page numbers, a multiple of all pages_per_block
  int64_t memory_bytes = 0;                   ///< most bytes in memory

  int64_t layers() const { return std::ssize(page_bytes); }
  /// Bytes of a block's keys, and of its values.
  int64_t half_bytes(int64_t layer) const;
  int64_t block_bytes(int64_t layer) const { return 2 * half_bytes(layer); }
  int64_t block_of(int64_t layer, int64_t page) const {
    return page / pages_per_block[static_cast<size_t>(layer)];
  }
  int64_t file_bytes() const;
  /// Bytes of blocks, keys and values together.
  int64_t bytes_of(std::span<const BlockPlace> places) const;
  /// Blocks of a layer that hold these pages, ascending, each once.
  std::vector<int64_t> blocks_of(int64_t layer, std::span<const int64_t> pages) const;
};

/// Pages of a block of each of these layers: equally many, as few as make each block whole pages of
/// the system and of the disk.
std::vector<int64_t> equal_pages(std::span<const int64_t> page_bytes);
/// Pages of a block of each layer where blocks of all layers have equally many bytes.
std::vector<int64_t> equal_bytes(std::span<const int64_t> page_bytes);

/// Blocks in a file, each with the checksum of its bytes. Used by one thread at a time.
class BlockFile {
 public:
  /// `file` holds pages.file_bytes().
  BlockFile(TieredPages pages, std::unique_ptr<PageFile> file);

  /// Writes the keys and the values of a run. Throws Error where the disk fails; what the file
  /// holds of the run means nothing then.
  void write(std::span<const BlockPlace> run, std::span<const std::byte> keys,
             std::span<const std::byte> values);
  /// Reads a run that was written. Throws Error where the disk fails or a block is damaged.
  void read(std::span<const BlockPlace> run, std::span<std::byte> keys,
            std::span<std::byte> values);

  const TieredPages& pages() const { return pages_; }
  int64_t read_bytes() const { return read_bytes_; }
  int64_t written_bytes() const { return written_bytes_; }

 private:
  int64_t offset(BlockPlace place, bool values) const;
  uint64_t checksum(int64_t layer, size_t index, std::span<const std::byte> keys,
                    std::span<const std::byte> values) const;
  uint64_t& expected(BlockPlace place);

  TieredPages pages_;
  std::unique_ptr<PageFile> file_;
  std::vector<int64_t> begins_;                   ///< [layers]
  std::vector<std::vector<uint64_t>> checksums_;  ///< [layers][blocks]
  int64_t read_bytes_ = 0;
  int64_t written_bytes_ = 0;
};

}  // namespace specdec
