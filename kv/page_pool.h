#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "core/kv_store.h"

namespace specdec {

using at::Tensor;

struct KvCacheOptions {
  at::ScalarType dtype = at::kFloat;  ///< dtype of the activations
  KvFormat format = KvFormat::kNative;
  at::Device device = at::kCPU;
  int64_t page_size = 16;  ///< tokens a page
  int64_t max_length = 0;  ///< most tokens of a row, kept and pending together
  /// The CPU is treated as a device: kernels read a copy of the tables, and pages are copied by
  /// ATen (for tests).
  bool as_device = false;
};

/// Bytes of a layer's page of keys and values; 0 for a layer that reads another's.
int64_t page_bytes(const LayerKv& layer, const KvCacheOptions& options);
/// Pages that a pool has room for, once `pages` are reserved where it had room for `capacity`.
int64_t grown_pages(int64_t capacity, int64_t pages);

/// The bytes of the pages of all layers: a page number means one page in each layer's pool. It
/// knows nothing of rows.
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
  /// Keys [pages, kv_heads, head_dim, page_size]; undefined before the first reserve.
  const Tensor& keys(int64_t layer) const { return source(layer).keys; }
  /// Values [pages, kv_heads, page_size, head_dim]; undefined before the first reserve.
  const Tensor& values(int64_t layer) const { return source(layer).values; }
  int64_t bytes() const;
  at::ScalarType page_dtype() const;

  /// Makes room for page numbers below `pages`: at least doubles, so that a growing sequence copies
  /// each number a few times only. Tensors handed out before keep the old pages.
  void reserve(int64_t pages);
  void copy_page(int64_t from, int64_t to);
  /// Copies tokens to other places, in all layers. A move may overwrite what an earlier one reads,
  /// not what a later one does.
  void move_slots(std::span<const Move> moves);
  /// Copies one token out: column `token` of keys and values, each [kv_heads, tokens, head_dim] of
  /// the pages' dtype.
  void read_token(int64_t layer, Place place, int64_t token, std::pair<Tensor, Tensor>& out) const;

 private:
  struct Pages {
    Tensor keys;
    Tensor values;
  };
  const Pages& source(int64_t layer) const;
  /// Whether the pages may be read and written through their pointers.
  bool on_host() const { return options_.device.is_cpu() && !options_.as_device; }
  /// Pages of one tensor from page `first` on.
  struct PageRange {
    const Tensor& pages;
    int64_t first;
  };
  void copy_token(size_t layer, const Move& move);
  void copy_pages(PageRange to, PageRange from, int64_t count) const;
  int64_t page_offset(const LayerKv& layer, int64_t page) const;

  std::vector<LayerKv> layers_;
  KvCacheOptions options_;
  std::vector<Pages> pages_;  // [layers]; undefined for those that read another layer's
  int64_t capacity_ = 0;
};

}  // namespace specdec
