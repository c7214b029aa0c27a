#pragma once
#include <array>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/kernels/copy_queue.h"
#include "core/transformer/paging/layer_source.h"
#include "core/transformer/paging/layer_store.h"

namespace specdec {

/// Reads layers from a store into two buffers, in which they take turns: a thread of its own reads
/// ahead while forwards compute. Layers that follow one another in a forward should be neighbours
/// in the list of its layers, since those lie in different buffers. On a device a layer is read
/// into pinned memory of the host and copied from there: into a buffer after the ops that were
/// called while the layer before was held, and before those that are called while this one is.
class LayerPager final : public LayerSource {
 public:
  static constexpr int64_t kBuffers = 2;
  /// The copies to each buffer of a device, whose memory it is; nullptr: of the host.
  using Copies = std::array<std::shared_ptr<CopyQueue>, kBuffers>;

  /// `layers`: numbers of the store's layers, ascending.
  LayerPager(std::shared_ptr<LayerStore> store, std::vector<int64_t> layers, Copies copies = {});
  /// Waits for a read that has begun.
  ~LayerPager() override;

  /// Where a layer lies while it is held: the beginning of its buffer.
  const std::shared_ptr<std::byte>& memory(int64_t layer) const;

  void prefetch(std::span<const int64_t> layers) override;
  void acquire(int64_t layer) override;
  void release(int64_t layer) override;
  LayerReads reads() const override;

 private:
  struct Buffer {
    std::shared_ptr<CopyQueue> copies = nullptr;
    std::shared_ptr<std::byte> memory = nullptr;
    std::shared_ptr<std::byte> pinned = nullptr;  ///< on a device: what is copied to it
    int64_t copied = -1;                          ///< mark of the newest copy
    int64_t layer = -1;  ///< that it holds, is being filled with, or could not be
    bool is_filled = false;
    bool was_used = false;  ///< since it was filled
    int64_t holders = 0;
    std::exception_ptr failure = nullptr;
  };

  size_t buffer_of(int64_t layer) const;
  /// Filled with the layer, or not to be filled with it.
  bool is_done(int64_t layer) const;
  bool is_free(size_t buffer) const;
  /// The layer to be read now: one that a forward waits for, else one that the next ones need.
  std::optional<int64_t> next() const;
  void wait_for(int64_t layer, std::unique_lock<std::mutex>& lock);
  void fill(int64_t layer, std::unique_lock<std::mutex>& lock);
  /// Into the buffer's memory.
  void read(int64_t layer, Buffer& buffer);
  void run();

  const std::shared_ptr<LayerStore> store_;
  const std::vector<int64_t> layers_;
  mutable std::mutex mutex_;         // of all below, but not of the buffers' bytes
  std::condition_variable work_;     // for the reader
  std::condition_variable changed_;  // for forwards: a buffer was filled
  std::array<Buffer, kBuffers> buffers_;
  std::vector<int64_t> order_;   ///< of the forward
  size_t upcoming_ = 0;          ///< index in order_, behind the newest layer that was acquired
  std::vector<int64_t> wanted_;  ///< that forwards wait for, an entry each
  LayerReads reads_;
  bool stops_ = false;
  std::thread reader_;  // the last member: it uses the others
};

}  // namespace specdec
