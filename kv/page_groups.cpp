#include "kv/page_groups.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

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

}  // namespace specdec
