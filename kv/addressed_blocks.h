#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "kv/block_memory.h"

namespace specdec {

/// Blocks at fixed addresses in the host's memory, which is given back to the system where they
/// leave it for a file.
class AddressedBlocks final : public BlockMemory {
 public:
  /// Where page 0 of a layer lies; nullptr for one without pages.
  struct Addresses {
    std::byte* keys = nullptr;
    std::byte* values = nullptr;
  };

  /// `file` holds pages.file_bytes().
  AddressedBlocks(const TieredPages& pages, std::vector<Addresses> layers,
                  std::unique_ptr<PageFile> file);

  const TieredPages& pages() const override { return file_.pages(); }
  bool moves_runs() const override { return true; }
  void make(BlockPlace) override {}  // the system gives zeros
  void load(std::span<const BlockPlace> run) override;
  void leave(std::span<const BlockPlace> run, bool is_changed) override;
  int64_t number(int64_t, int64_t page) const override { return page; }
  void add_counts(KvTiers& counts) const override;

 private:
  std::span<std::byte> memory(BlockPlace place, bool values, size_t count) const;

  BlockFile file_;
  std::vector<Addresses> layers_;
};

}  // namespace specdec
