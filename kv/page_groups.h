#pragma once
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/kv_store.h"
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
  int64_t number_of(int64_t layer) const;
  PageGroup& of(int64_t layer) { return groups_[static_cast<size_t>(number_of(layer))]; }
  const PageGroup& of(int64_t layer) const {
    return groups_[static_cast<size_t>(number_of(layer))];
  }

  using HeldPages = std::vector<std::vector<PageTable::Page>>;  ///< of each group
  /// Ends the holding of pages, from any thread: the tables learn of it by take_back().
  void give_back(HeldPages pages);
  /// Releases what holders have given back.
  void take_back();
  /// Lets page numbers of a group below `pages` be used (PagePool::reserve).
  void reserve(PageGroup& group, int64_t pages);
  /// Copies of the first `tokens` tokens of all layers with keys and values of their own, then of
  /// their exact pages, in held pages; from any thread.
  std::vector<LayerKeyValues> copy_out(const HeldPages& pages, int64_t tokens) const;

 private:
  void add_groups(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

  std::vector<PageGroup> groups_;
  bool has_exact_;
  std::vector<int64_t> group_of_layer_;
  mutable std::mutex mutex_;  // of given_back_, and of pools that grow
  std::vector<HeldPages> given_back_;
};

}  // namespace specdec
