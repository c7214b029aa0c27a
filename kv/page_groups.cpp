#include "kv/page_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kv/page_tiers.h"

namespace specdec {

int64_t PageGroup::pages_behind(int64_t length) const {
  const int64_t behind = length - window - options.window_slack;
  return window == 0 ? 0 : std::max<int64_t>(0, behind) / options.page_size;
}

PagePool::Place PageGroup::at(int64_t row, int64_t slot) const {
  const auto index = static_cast<size_t>(slot / options.page_size);
  return {table.pages(row)[index], slot % options.page_size};
}

PageGroups::PageGroups(const std::vector<LayerKv>& layers, const KvCacheOptions& options)
    : has_exact_(options.exact_recent > 0), group_of_layer_(layers.size()) {
  add_groups(layers, options);
  if (has_exact_) {
    groups_.emplace_back(exact_layers(layers, options), exact_options(layers, options),
                         exact_window(options));
  }
}

void PageGroups::add_groups(const std::vector<LayerKv>& layers, const KvCacheOptions& options) {
  if (options.window_slack == 0) {
    groups_.emplace_back(layers, options, std::nullopt);
    return;
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const int64_t window = layers[i].window;
    const auto group =
        std::find_if(groups_.begin(), groups_.end(),
                     [window](const PageGroup& each) { return each.window == window; });
    group_of_layer_[i] = group - groups_.begin();
    if (group == groups_.end()) {
      groups_.emplace_back(layers, options, window);  // which checks the layers
    }
    SPECDEC_CHECK(layers[i].sink == 0, "cache: window_slack would give back the sink of layer {}",
                  i);
    const int64_t source = layers[i].source_layer;
    SPECDEC_CHECK(
        source < 0 || layers[static_cast<size_t>(source)].window == window,
        "cache: with window_slack layer {} of window {} cannot read layer {} of window {}", i,
        window, source, source < 0 ? 0 : layers[static_cast<size_t>(source)].window);
  }
}

int64_t PageGroups::number_of(int64_t layer) const {
  SPECDEC_CHECK(layer >= 0 && layer < layers(), "cache: layer {} of {}", layer, layers());
  return group_of_layer_[static_cast<size_t>(layer)];
}

KvView PageGroups::describe(int64_t layer) const {
  const PageGroup& group = of(layer);
  const PagePool& pool = group.pool;
  KvView view;
  view.group = renumbers() ? pool.source_of(layer) : number_of(layer);
  view.window = pool.geometry(layer).window;
  view.sink = pool.geometry(layer).sink;
  view.keys = pool.keys(layer);
  view.values = pool.values(layer);
  view.format = group.options.format;
  view.rotation = group.options.rotation;
  view.levels = pool.levels(layer);
  if (const PageGroup* own = exact()) {
    const int64_t recent = group.options.exact_recent;
    view.exact = {own->pool.keys(layer), own->pool.values(layer), count() - 1,
                  view.window > 0 ? std::min(view.window, recent) : recent,
                  kv_key_group(view.format)};
  }
  return view;
}

PageForm PageGroups::form_of(const PageGroup& group) const {
  return {group.options.format, options().rotation, options().dtype};
}

void PageGroups::check_rewindable(const char* call, int64_t length, int64_t shortest) const {
  if (length > 0 && length < shortest) {
    throw Error(fmt::format(
        "{} to {} tokens: the cache has given back keys and values that the layers' windows{} left "
        "behind, and holds what {} tokens or more need, or none: raise window_slack of the cache "
        "({}), or read the text anew",
        call, length, has_exact_ ? " or exact_recent" : "", shortest,
        has_exact_ ? exact()->options.window_slack : options().window_slack));
  }
}

KvStatistics PageGroups::statistics(std::span<const int64_t> lengths) const {
  const int64_t page_size = options().page_size;
  KvStatistics statistics{.page_size = page_size};
  statistics.layers.resize(static_cast<size_t>(layers()));
  for (const PageGroup& group : groups_) {
    const PageTable::Use use = group.table.use(lengths, page_size);
    const int64_t allocated = group.pool.allocated(group.table.pages_made());
    statistics.used_pages += use.used;
    statistics.shared_pages += use.shared;
    statistics.spare_pages += use.spare;
    statistics.free_pages += group.table.free_pages();
    statistics.allocated_pages += allocated;
    statistics.tokens += use.tokens;
    statistics.slots += use.filled * page_size;
    for (int64_t layer = 0; layer < layers(); ++layer) {
      const KvStatistics::Layer own{page_bytes(group.pool.geometry(layer), group.options), use.used,
                                    allocated};
      if (&group == exact()) {
        statistics.exact_layers.push_back(own);
      } else if (&of(layer) == &group) {
        statistics.layers[static_cast<size_t>(layer)] = own;
      }
    }
  }
  if (PageTiers* pages = tiers()) {
    statistics.tiers = pages->statistics();
  }
  return statistics;
}

void PageGroups::give_back(HeldPages pages) {
  const std::lock_guard lock(mutex_);
  given_back_.push_back(std::move(pages));
}

void PageGroups::take_back() {
  const std::lock_guard lock(mutex_);
  for (const HeldPages& pages : given_back_) {
    for (size_t group = 0; group < groups_.size(); ++group) {
      groups_[group].table.release(pages[group]);
    }
  }
  given_back_.clear();
}

void PageGroups::reserve(PageGroup& group, int64_t pages) {
  const std::lock_guard lock(mutex_);
  group.pool.reserve(pages);
}

void PageGroups::touch(int64_t pages) {
  for (PageGroup& group : groups_) {
    const int64_t most = std::min(group.windowed(pages), group.pool.capacity());
    reserve(group, most);
    group.pool.touch(most);
  }
}

std::vector<LayerKeyValues> PageGroups::copy_out(const HeldPages& pages, int64_t tokens) const {
  const std::lock_guard lock(mutex_);
  std::vector<LayerKeyValues> copies;
  const auto copy = [&](const PageGroup& group, int64_t number, int64_t layer) {
    if (group.pool.geometry(layer).source_layer < 0) {
      copies.push_back(group.pool.copy_out(layer, pages[static_cast<size_t>(number)], tokens));
    }
  };
  for (int64_t layer = 0; layer < layers(); ++layer) {
    copy(of(layer), number_of(layer), layer);
  }
  for (int64_t layer = 0; has_exact_ && layer < layers(); ++layer) {
    copy(groups_.back(), count() - 1, layer);
  }
  return copies;
}

void PageGroups::copy_in(int64_t row, int64_t tokens, const std::vector<LayerKeyValues>& copies) {
  size_t next = 0;
  const auto copy = [&](PageGroup& group, int64_t layer) {
    if (group.pool.geometry(layer).source_layer < 0) {
      SPECDEC_CHECK(next < copies.size(), "restore: the snapshot has {} layers", copies.size());
      group.pool.copy_in(layer, group.table.pages(row), {0, tokens}, copies[next++]);
    }
  };
  for (int64_t layer = 0; layer < layers(); ++layer) {
    copy(of(layer), layer);
  }
  for (int64_t layer = 0; has_exact_ && layer < layers(); ++layer) {
    copy(groups_.back(), layer);
  }
  SPECDEC_CHECK(next == copies.size(), "restore: the snapshot has {} layers, not {}", copies.size(),
                next);
}

}  // namespace specdec
