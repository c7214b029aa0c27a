#pragma once
#include <optional>
#include <span>
#include <vector>

#include "core/kv_store.h"
#include "kv/page_pool.h"
#include "kv/page_table.h"

namespace specdec {

/// Layers that share a page table: page numbers, and the pages that they mean.
struct PageGroup {
  /// Of the layers with this window alone; nullopt: of all layers, whose pages are never given
  /// back.
  PageGroup(const std::vector<LayerKv>& layers, const KvCacheOptions& options,
            std::optional<int64_t> window)
      : window(window.value_or(0)), pool(layers, options, window) {}

  int64_t window;  ///< 0 = no page is given back before its row ends
  PagePool pool;
  PageTable table;
};

/// All layers of a cache: one group, or with window_slack one for each distinct window.
class PageGroups {
 public:
  /// Throws InternalError for layers that cannot be, and for one that reads a layer of another
  /// window, or has a sink, while there is a slack.
  PageGroups(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

  std::vector<PageGroup>& all() { return groups_; }
  const std::vector<PageGroup>& all() const { return groups_; }
  int64_t count() const { return std::ssize(groups_); }
  int64_t layers() const { return std::ssize(group_of_layer_); }
  int64_t number_of(int64_t layer) const;
  PageGroup& of(int64_t layer) { return groups_[static_cast<size_t>(number_of(layer))]; }
  const PageGroup& of(int64_t layer) const {
    return groups_[static_cast<size_t>(number_of(layer))];
  }

 private:
  std::vector<PageGroup> groups_;
  std::vector<int64_t> group_of_layer_;
};

}  // namespace specdec
