#include <fmt/format.h>

#include <algorithm>

#include "core/kv_trace.h"
#include "experiments/report/figure_list.h"

namespace specdec {
void add_attention_ages(const Report& report, FigureList& figures) {
  const AttentionAges& ages = report.details.attention_ages;
  HeatMap map{.title = "How far back attention looks",
              .x_label = "positions back, to the next number",
              .y_label = "layer",
              .x_names = {},
              .y_names = {},
              .values = {},
              .middle = 0.0};
  size_t buckets = 0;
  for (const std::vector<double>& shares : ages) {
    buckets = std::max(buckets, shares.size());
  }
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    map.x_names.push_back(fmt::format("{}", first_age(bucket)));
  }
  for (size_t layer = 0; layer < ages.size(); ++layer) {
    map.y_names.push_back(fmt::format("{}", layer));
    map.values.emplace_back(ages[layer].begin(), ages[layer].end());
    map.values.back().resize(buckets);
  }
  figures.add("attention_ages", map,
              "Share of a layer's attention on keys so many positions back, a mean over query "
              "heads, tokens and drafted nodes, prompts included. Empty fields lie beyond the "
              "layer's window, or were never reached. A layer that looks back little can do with "
              "a window.",
              "the cache was not traced; choose `cache: {type: tracing}`.");
}

}  // namespace specdec
