#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "core/kv_store.h"
#include "kv/page_memory.h"

namespace specdec {

struct KvCacheOptions {
  at::ScalarType dtype = at::kFloat;  ///< dtype of the activations
  KvFormat format = KvFormat::kNative;
  at::Device device = at::kCPU;
  int64_t page_size = 16;  ///< tokens a page
  int64_t max_length = 0;  ///< most tokens of a row, kept and pending together
  /// Most pages of a layer with own keys. 0 = as many as max_length tokens of max_rows rows take,
  /// where max_rows is 0 too: of one row where pages are allocated at once, else of 4096 rows, but
  /// no more than a terabyte of address space holds.
  int64_t max_pages = 0;
  int64_t max_bytes = 0;    ///< most bytes of the pages of all layers; 0 = any number
  int64_t max_rows = 0;     ///< most rows at a time; 0 = any number
  int64_t max_pending = 0;  ///< most pending nodes of a row; 0 = max_length
  /// The CPU is treated as a device: kernels read a copy of the tables, and pages are copied by
  /// ATen (for tests).
  bool as_device = false;
};

/// Bytes of a layer's page of keys and values; 0 for a layer that reads another's.
int64_t page_bytes(const LayerKv& layer, const KvCacheOptions& options);
/// Pages that a pool of these layers holds at most. Throws Error where max_bytes are less than a
/// page.
int64_t page_capacity(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

/// The bytes of the pages of all layers: a page number means one page in each layer's pool, also in
/// those with a window. Pages never move. It knows nothing of rows.
class PagePool {
 public:
  /// Place of a token's keys and values, in every layer.
  struct Place {
    int64_t page;
    int64_t index;  ///< within the page
  };

  struct Move {
    Place from;
    Place to;
  };

  PagePool(std::vector<LayerKv> layers, const KvCacheOptions& options);

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  const LayerKv& geometry(int64_t layer) const;
  /// Keys [pages, kv_heads, width_of(layer), page_size]; undefined before the first reserve.
  const Tensor& keys(int64_t layer) const { return source(layer).keys.pages(); }
  /// Values [pages, kv_heads, page_size, width_of(layer)]; undefined before the first reserve.
  const Tensor& values(int64_t layer) const { return source(layer).values.pages(); }
  /// Bytes of a page number: a page in each layer's pool.
  int64_t page_bytes() const;
  /// Pages that take memory when those below `pages` have been used.
  int64_t allocated(int64_t pages) const;
  at::ScalarType page_dtype() const;
  /// Elements of a token's key or value in a page.
  int64_t width_of(const LayerKv& layer) const;

  /// Page numbers that there can be.
  int64_t capacity() const { return capacity_; }
  /// Lets page numbers below `pages`, at most capacity(), be used. Copies nothing.
  void reserve(int64_t pages);
  /// Reserves page numbers below `pages` and makes their memory resident.
  void touch(int64_t pages);
  void copy_page(int64_t from, int64_t to);
  /// Copies tokens to other places, in all layers. A move may overwrite what an earlier one reads,
  /// not what a later one does.
  void move_slots(std::span<const Move> moves);
  /// Copies of the first `tokens` tokens in some pages of a layer with keys and values of its own,
  /// in the host's memory.
  LayerKeyValues copy_out(int64_t layer, std::span<const int32_t> pages, int64_t tokens) const;
  /// Copies the first `tokens` tokens of a layer into pages, from their beginning on. InternalError
  /// where they have another geometry or dtype.
  void copy_in(int64_t layer, std::span<const int32_t> pages, int64_t tokens,
               const LayerKeyValues& from);
  /// Copies one token out: column `token` of keys and values, each [kv_heads, tokens,
  /// width_of(layer)] of the pages' dtype.
  void read_token(int64_t layer, Place place, int64_t token, std::pair<Tensor, Tensor>& out) const;

 private:
  struct Pages {
    PageMemory keys;
    PageMemory values;
  };
  const Pages& source(int64_t layer) const;
  /// Whether the pages may be read and written through their pointers.
  bool on_host() const { return options_.device.is_cpu() && !options_.as_device; }
  void copy_token(size_t layer, const Move& move) const;
  void copy_within(const Tensor& pages, int64_t from, int64_t to) const;
  int64_t page_offset(const LayerKv& layer, int64_t page) const;

  std::vector<LayerKv> layers_;
  KvCacheOptions options_;
  std::vector<Pages> pages_;  // [layers]; empty for those that read another layer's
  int64_t capacity_;
  int64_t usable_ = 0;
};

}  // namespace specdec
