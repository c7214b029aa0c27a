#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/kv_store.h"
#include "kv/page_capacity.h"
#include "kv/page_memory.h"

namespace specdec {

/// Indices of pages and of slots within them, each int64 [moves] on a device.
struct MovedSlots {
  Tensor from_pages;
  Tensor from_slots;
  Tensor to_pages;
  Tensor to_slots;
};

/// The pages of one layer's keys and values, and copies of what lies in them. Pages are named by
/// where they lie in its tensors.
class LayerPages {
 public:
  /// Place of a token's keys and values.
  struct Place {
    int64_t page;
    int64_t index;  ///< within the page
  };
  struct Move {
    Place from;
    Place to;
  };

  /// No pages: those of a layer that reads another's.
  LayerPages() = default;
  LayerPages(const LayerKv& layer, const KvCacheOptions& options);

  /// Memory for so many pages at most (PageMemory).
  void make(int64_t capacity);
  /// Pages [pages, *key_sizes()] and [pages, *value_sizes()] that another owner has allocated.
  void adopt(Tensor keys, Tensor values);
  std::vector<int64_t> key_sizes() const { return {kv_heads_, width_, page_size_}; }
  std::vector<int64_t> value_sizes() const { return {kv_heads_, page_size_, width_}; }

  void reserve(int64_t pages);
  void touch(int64_t pages);
  const Tensor& keys() const { return keys_.pages(); }
  const Tensor& values() const { return values_.pages(); }
  /// Levels of kQ3, on the pages' device; undefined: kNormalLevels.
  const Tensor& levels() const { return levels_; }

  void copy_page(int64_t from, int64_t to) const;
  /// Copies tokens to other places, one after the other; where the pages are on the host.
  void move_slots(std::span<const Move> moves) const;
  /// The same wherever they are: reads all, then writes.
  void move_slots(const MovedSlots& moves) const;
  /// Copies one token out: column `token` of keys and values, each [kv_heads, tokens, width].
  void read_token(Place place, int64_t token, std::pair<Tensor, Tensor>& out) const;
  /// Copies the first `count` tokens of a page to those from `first` on.
  void copy_out(int64_t page, int64_t count, int64_t first, const LayerKeyValues& to) const;
  /// Copies `count` tokens, of which the first is `first`, to a place and those behind it.
  void copy_in(Place place, int64_t count, int64_t first, const LayerKeyValues& from) const;

 private:
  void copy_within(const Tensor& pages, int64_t from, int64_t to) const;
  void copy_token(const Move& move) const;
  int64_t offset(int64_t page) const { return page * kv_heads_ * page_size_ * width_; }

  int64_t kv_heads_ = 0;
  int64_t page_size_ = 0;
  int64_t width_ = 0;
  at::TensorOptions elements_;
  bool on_host_ = true;  // the pages may be read and written through their pointers
  PageMemory keys_;
  PageMemory values_;
  Tensor levels_;
};

/// Moves as LayerPages::move_slots takes them on a device.
MovedSlots moved_slots(std::span<const LayerPages::Move> moves, at::Device device);
/// Whether pages may be read and written through their pointers.
bool lies_on_host(const KvCacheOptions& options);

}  // namespace specdec
