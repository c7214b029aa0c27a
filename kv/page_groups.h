#pragma once
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/kernels/kv_view.h"
#include "core/kv_store.h"
#include "kv/page_numbers.h"
#include "kv/page_pool.h"
#include "kv/page_table.h"

namespace specdec {

/// Layers that share a page table: page numbers, and the pages that they mean.
struct PageGroup {
  /// A group of the layers with this window alone; nullopt: of all layers, whose pages are never
  /// given back.
  PageGroup(const std::vector<LayerKv>& layers, const KvCacheOptions& options,
            std::optional<int64_t> window)
      : options(options), window(window.value_or(0)), pool(layers, options, window) {}

  /// Pages that it needs where one that sees everything needs `pages`.
  int64_t windowed(int64_t pages) const { return windowed_pages(window, pages, options); }
  /// First pages of a row of so many kept tokens that the window has left behind.
  int64_t pages_behind(int64_t length) const;
  /// Where a slot of a row lies, by the row's place.
  PagePool::Place at(int64_t row, int64_t slot) const;

  KvCacheOptions options;  ///< the cache's, or those of exact pages
  int64_t window;          ///< 0 = no page is given back before its row ends
  PagePool pool;
  PageTable table;
};

/// All layers of a cache: one group, or with window_slack one for each distinct window, and with
/// exact_recent one of all layers' exact pages. Of the cache's thread, but for what holders of
/// pages may call from any.
class PageGroups {
 public:
  /// Throws InternalError for layers that cannot be, and for one that reads a layer of another
  /// window, or has a sink, while there is a slack.
  PageGroups(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

  std::vector<PageGroup>& all() { return groups_; }
  const std::vector<PageGroup>& all() const { return groups_; }
  int64_t count() const { return std::ssize(groups_); }
  /// The group of exact pages; nullptr where there are none.
  PageGroup* exact() { return has_exact_ ? &groups_.back() : nullptr; }
  const PageGroup* exact() const { return has_exact_ ? &groups_.back() : nullptr; }
  int64_t layers() const { return std::ssize(group_of_layer_); }
  const KvCacheOptions& options() const { return groups_.front().options; }
  /// Where pages lie on disk too: caches with tiers have one group. nullptr: all lie in memory.
  PageTiers* tiers() const { return groups_.front().pool.tiers(); }
  bool renumbers() const { return groups_.front().pool.renumbers(); }
  int64_t number_of(int64_t layer) const;
  PageGroup& of(int64_t layer) { return groups_[static_cast<size_t>(number_of(layer))]; }
  const PageGroup& of(int64_t layer) const {
    return groups_[static_cast<size_t>(number_of(layer))];
  }

  /// The view of a layer's pages, without tables.
  KvView describe(int64_t layer) const;
  /// How a group's pages hold numbers: exact ones have the rotation of the others.
  PageForm form_of(const PageGroup& group) const;
  /// Throws Error for a call that cuts a row to fewer tokens than `shortest`, but for none.
  void check_rewindable(const char* call, int64_t length, int64_t shortest) const;
  /// The use of the pages by rows of so many tokens, in order of their places.
  KvStatistics statistics(std::span<const int64_t> lengths) const;

  using HeldPages = std::vector<std::vector<PageTable::Page>>;  ///< of each group
  /// Ends the holding of pages, from any thread: the tables learn of it by take_back().
  void give_back(HeldPages pages);
  /// Releases what holders have given back.
  void take_back();
  /// Lets page numbers of a group below `pages` be used (PagePool::reserve).
  void reserve(PageGroup& group, int64_t pages);
  /// Makes the memory of a row of so many pages resident, as far as the capacity goes.
  void touch(int64_t pages);
  /// Copies of the first `tokens` tokens of all layers with keys and values of their own, then of
  /// their exact pages, in held pages; from any thread.
  std::vector<LayerKeyValues> copy_out(const HeldPages& pages, int64_t tokens) const;
  /// Copies such copies of the first `tokens` tokens to the pages of a row, by its place.
  void copy_in(int64_t row, int64_t tokens, const std::vector<LayerKeyValues>& copies);

 private:
  void add_groups(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

  std::vector<PageGroup> groups_;
  bool has_exact_;
  std::vector<int64_t> group_of_layer_;
  mutable std::mutex mutex_;  // of given_back_, and of pools that grow
  std::vector<HeldPages> given_back_;
};

}  // namespace specdec
