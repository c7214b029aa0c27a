#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/kv_store.h"
#include "kv/layer_pages.h"
#include "kv/page_capacity.h"

namespace specdec {

class PageTiers;
struct PageUse;
struct TieredPages;

/// The bytes of the pages of all layers, or of those with one window: a page number means a page of
/// each of them. Pages never move, but for those of a device with tiers. It knows nothing of rows.
class PagePool {
 public:
  using Place = LayerPages::Place;  ///< in every layer
  using Move = LayerPages::Move;

  /// `window`: of the layers with this window alone, which are still named by their number among
  /// all.
  PagePool(std::vector<LayerKv> layers, const KvCacheOptions& options,
           std::optional<int64_t> window = std::nullopt);

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  const LayerKv& geometry(int64_t layer) const;
  /// Keys [pages, kv_heads, width_of(layer), page_size]; undefined before the first reserve.
  const Tensor& keys(int64_t layer) const { return source(layer).keys(); }
  /// Values [pages, kv_heads, page_size, width_of(layer)]; undefined before the first reserve.
  const Tensor& values(int64_t layer) const { return source(layer).values(); }
  /// Levels of kQ3 of the layer's pages, on their device; undefined: kNormalLevels.
  const Tensor& levels(int64_t layer) const { return source(layer).levels(); }
  /// Bytes of a page number.
  int64_t page_bytes() const;
  /// Pages that take memory when those below `pages` have been used.
  int64_t allocated(int64_t pages) const;
  at::ScalarType page_dtype() const;
  /// Elements of a token's key or value in a page.
  int64_t width_of(const LayerKv& layer) const;

  /// Moves pages between memory and disk; nullptr where all lie in memory. Pages have to be brought
  /// before keys() and values() of their layer are read or written; all other calls do it.
  PageTiers* tiers() const { return tiers_.get(); }
  /// Whether pages of a layer lie in keys() and values() where number() says, and their capacity is
  /// not this pool's.
  bool renumbers() const { return tiers_ != nullptr && !on_host(); }
  /// Where a page that was brought last lies in a layer's keys() and values(): at its own number,
  /// unless renumbers(), which gives -1 for pages that lie elsewhere.
  int64_t number(int64_t layer, int64_t page) const;
  /// Brings pages of a layer, which lie in that of source_of(); nothing without tiers.
  void bring(int64_t layer, std::span<const PageUse> uses) const;
  /// The layer whose keys and values a layer reads: itself, as a rule.
  int64_t source_of(int64_t layer) const;

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
  /// in the host's memory; zeros for those of page -1.
  LayerKeyValues copy_out(int64_t layer, std::span<const int32_t> pages, int64_t tokens) const;
  /// Copies tokens of a layer, the first of which is `tokens.begin`, to their places in pages; none
  /// into page -1. InternalError where they have another geometry or dtype.
  void copy_in(int64_t layer, std::span<const int32_t> pages, TokenRange tokens,
               const LayerKeyValues& from);
  /// Copies one token out: column `token` of keys and values, each [kv_heads, tokens,
  /// width_of(layer)] of the pages' dtype.
  void read_token(int64_t layer, Place place, int64_t token, std::pair<Tensor, Tensor>& out) const;

 private:
  TieredPages tiered_pages();
  void make_pages();
  void make_tiers(const TieredPages& pages);
  void make_device_tiers(const TieredPages& pages);
  const LayerPages& source(int64_t layer) const;
  /// Whether the pages of a layer are its own, and of this pool.
  bool owns(size_t layer) const {
    return layers_[layer].source_layer < 0 && (!window_ || layers_[layer].window == *window_);
  }
  /// Whether the pages may be read and written through their pointers.
  bool on_host() const { return lies_on_host(options_); }
  std::vector<Move> located(int64_t layer, std::span<const Move> moves) const;

  std::vector<LayerKv> layers_;
  KvCacheOptions options_;
  std::optional<int64_t> window_;
  std::vector<LayerPages> pages_;  // [layers]; empty for those that it does not own
  std::shared_ptr<PageTiers> tiers_;
  int64_t capacity_;
  int64_t usable_ = 0;
};

}  // namespace specdec
