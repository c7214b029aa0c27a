#include "kv/addressed_blocks.h"

#include <sys/mman.h>

#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

/// A large page of the system would make all blocks in it resident with the first one.
void forbid_large_pages([[maybe_unused]] std::span<std::byte> memory) {
#ifdef MADV_NOHUGEPAGE
  (void)::madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE);  // fails where there are none
#endif
}

}  // namespace

AddressedBlocks::AddressedBlocks(const TieredPages& pages, std::vector<Addresses> layers,
                                 std::unique_ptr<PageFile> file)
    : file_(pages, std::move(file)), layers_(std::move(layers)) {
  for (int64_t layer = 0; layer < pages.layers(); ++layer) {
    const auto blocks = static_cast<size_t>(pages.block_of(layer, pages.capacity));
    if (layers_[static_cast<size_t>(layer)].keys != nullptr) {
      forbid_large_pages(memory({layer, 0}, false, blocks));
      forbid_large_pages(memory({layer, 0}, true, blocks));
    }
  }
}

/// Memory of the keys, or values, of `count` blocks from a place on.
std::span<std::byte> AddressedBlocks::memory(BlockPlace place, bool values, size_t count) const {
  const Addresses& layer = layers_[static_cast<size_t>(place.layer)];
  const int64_t bytes = pages().half_bytes(place.layer);
  return {(values ? layer.values : layer.keys) + place.block * bytes,
          count * static_cast<size_t>(bytes)};
}

void AddressedBlocks::load(std::span<const BlockPlace> run) {
  file_.read(run, memory(run[0], false, run.size()), memory(run[0], true, run.size()));
}

void AddressedBlocks::leave(std::span<const BlockPlace> run, bool is_changed) {
  if (is_changed) {
    file_.write(run, memory(run[0], false, run.size()), memory(run[0], true, run.size()));
  }
  for (const bool values : {false, true}) {
    const std::span<std::byte> all = memory(run[0], values, run.size());
    SPECDEC_CHECK(::madvise(all.data(), all.size(), MADV_DONTNEED) == 0,
                  "the memory of {} blocks of layer {} cannot be given back", run.size(),
                  run[0].layer);
  }
}

void AddressedBlocks::add_counts(KvTiers& counts) const {
  counts.read_bytes = file_.read_bytes();
  counts.written_bytes = file_.written_bytes();
}

}  // namespace specdec
