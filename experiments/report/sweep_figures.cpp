#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "experiments/report/figure_list.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr size_t kMaxLines = 14;
constexpr size_t kMaxHeatMaps = 6;

std::optional<double> parse_number(const std::string& text) {
  double number = 0.0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

/// The swept key that the figures have along x: the one with the most values. Others make lines.
class SweepAxis {
 public:
  explicit SweepAxis(const Report& report) : report_(report) {
    size_t most = 0;
    for (size_t key = 0; key < report.sweep_keys.size(); ++key) {
      std::set<std::string> values;
      for (const ReportSweepPoint& point : report.sweep_points) {
        values.insert(value(point, key));
      }
      if (values.size() > most) {
        most = values.size();
        key_ = key;
      }
    }
    for (const ReportSweepPoint& point : report.sweep_points) {
      const std::string text = value(point, key_);
      numeric_ = numeric_ && parse_number(text);
      if (std::find(names_.begin(), names_.end(), text) == names_.end()) {
        names_.push_back(text);
      }
    }
  }

  bool is_usable() const { return names_.size() >= 2; }
  std::string key() const { return report_.sweep_keys[key_]; }
  /// Names of the ticks, when the values are not numbers.
  std::vector<std::string> tick_names() const { return numeric_ ? Names() : names_; }
  double x(const ReportSweepPoint& point) const {
    const std::string text = value(point, key_);
    return numeric_ ? parse_number(text).value_or(0.0)
                    : static_cast<double>(std::find(names_.begin(), names_.end(), text) -
                                          names_.begin());
  }
  /// Values of the other keys: "temperature=0.7".
  std::string others(const ReportSweepPoint& point) const {
    std::string text;
    for (size_t key = 0; key < report_.sweep_keys.size(); ++key) {
      if (key != key_) {
        text += fmt::format(", {}={}", report_.sweep_keys[key], value(point, key));
      }
    }
    return text;
  }

 private:
  using Names = std::vector<std::string>;

  static std::string value(const ReportSweepPoint& point, size_t key) {
    return key < point.values.size() ? point.values[key] : "";
  }

  const Report& report_;
  size_t key_ = 0;
  bool numeric_ = true;
  Names names_;
};

/// A strategy that the sweep does not touch: the same all along.
PlotSeries level_series(const Report& report, const SweepAxis& axis, const std::string& strategy,
                        double y) {
  PlotSeries series{.name = strategy + " (not swept)",
                    .style = strategy_index(report, strategy),
                    .points = {},
                    .mark = PlotMark::kDashes};
  for (const ReportSweepPoint& point : report.sweep_points) {
    series.points.push_back({.x = axis.x(point), .y = y});
  }
  return series;
}

/// Lines of `point_of` along the axis, one per strategy and values of the other keys.
template <class PointOf>
std::vector<PlotSeries> sweep_series(const Report& report, const SweepAxis& axis,
                                     PointOf point_of) {
  std::vector<PlotSeries> all;
  std::map<std::string, size_t> places;
  for (const SummaryRow& row : report.summary.rows) {
    const auto point =
        std::find_if(report.sweep_points.begin(), report.sweep_points.end(),
                     [&](const ReportSweepPoint& each) { return each.label == row.sweep_point; });
    std::optional<PlotPoint> value = point_of(row);
    if (!row.category.empty() || row.is_first || !value || point == report.sweep_points.end()) {
      continue;
    }
    if (!is_swept(report.summary.rows, row.strategy)) {
      all.push_back(level_series(report, axis, row.strategy, value->y));
      continue;
    }
    value->x = axis.x(*point);
    const std::string others = axis.others(*point);
    const auto [place, is_new] = places.try_emplace(row.strategy + others, all.size());
    if (is_new) {
      const size_t style = others.empty() ? strategy_index(report, row.strategy) : all.size() + 1;
      all.push_back({.name = row.strategy + others, .style = style, .points = {}});
    }
    all[place->second].points.push_back(*value);
  }
  for (PlotSeries& series : all) {
    std::sort(series.points.begin(), series.points.end(),
              [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  }
  all.resize(std::min(all.size(), kMaxLines));
  return all;
}

/// Places of two keys' values, and the values of the others.
struct SweepGrid {
  size_t x_key = 0, y_key = 0;
  std::vector<std::string> x_values, y_values;
};

std::vector<std::string> values_of(const Report& report, size_t key) {
  std::vector<std::string> values;
  for (const ReportSweepPoint& point : report.sweep_points) {
    const std::string value = key < point.values.size() ? point.values[key] : "";
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      values.push_back(value);
    }
  }
  return values;
}

/// The two keys with the most values; none when the sweep has fewer that vary.
std::optional<SweepGrid> sweep_grid(const Report& report) {
  std::vector<std::pair<size_t, size_t>> sizes;  // number of values, key
  for (size_t key = 0; key < report.sweep_keys.size(); ++key) {
    sizes.emplace_back(values_of(report, key).size(), key);
  }
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (sizes.size() < 2 || sizes[1].first < 2) {
    return std::nullopt;
  }
  return SweepGrid{sizes[0].second, sizes[1].second, values_of(report, sizes[0].second),
                   values_of(report, sizes[1].second)};
}

size_t index_of(const std::vector<std::string>& values, const std::string& value) {
  return static_cast<size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

/// One map a strategy and values of the keys that are not its axes, of what `value_of` gives.
template <class ValueOf>
std::vector<HeatMap> heat_maps(const Report& report, const SweepGrid& grid, const std::string& what,
                               ValueOf value_of) {
  std::vector<HeatMap> maps;
  for (const SummaryRow& row : report.summary.rows) {
    const auto point =
        std::find_if(report.sweep_points.begin(), report.sweep_points.end(),
                     [&](const ReportSweepPoint& each) { return each.label == row.sweep_point; });
    const std::optional<double> value = value_of(row);
    if (!row.category.empty() || !value || point == report.sweep_points.end() ||
        point->values.size() != report.sweep_keys.size()) {
      continue;
    }
    std::string title = what + ", " + row.strategy;
    for (size_t key = 0; key < report.sweep_keys.size(); ++key) {
      if (key != grid.x_key && key != grid.y_key) {
        title += fmt::format(", {}={}", report.sweep_keys[key], point->values[key]);
      }
    }
    auto map = std::find_if(maps.begin(), maps.end(),
                            [&](const HeatMap& each) { return each.title == title; });
    if (map == maps.end()) {
      using Row = std::vector<std::optional<double>>;
      map = maps.insert(maps.end(), {.title = title,
                                     .x_label = report.sweep_keys[grid.x_key],
                                     .y_label = report.sweep_keys[grid.y_key],
                                     .x_names = grid.x_values,
                                     .y_names = grid.y_values,
                                     .values = std::vector<Row>(grid.y_values.size(),
                                                                Row(grid.x_values.size()))});
    }
    map->values[index_of(grid.y_values, point->values[grid.y_key])]
               [index_of(grid.x_values, point->values[grid.x_key])] = value;
  }
  return maps;
}

/// Whether a map has at least two values along both axes; a strategy that a key does not touch was
/// run once.
bool covers_plane(const HeatMap& map) {
  size_t rows = 0;
  std::vector<size_t> columns(map.x_names.size(), 0);
  for (const auto& row : map.values) {
    size_t filled = 0;
    for (size_t x = 0; x < row.size(); ++x) {
      filled += row[x] ? 1 : 0;
      columns[x] += row[x] ? 1 : 0;
    }
    rows += filled >= 2 ? 1 : 0;
  }
  return rows >= 2 && std::count_if(columns.begin(), columns.end(),
                                    [](size_t filled) { return filled >= 2; }) >= 2;
}

void add_heat_maps(const Report& report, FigureList& figures) {
  const auto grid = sweep_grid(report);
  if (!grid) {
    figures.leave_out("Heat maps of a sweep", "only one key of the sweep has several values.");
    return;
  }
  size_t count = 0;
  for (const HeatMap& map :
       heat_maps(report, *grid, "Speed-up", [](const SummaryRow& row) -> std::optional<double> {
         return row.speedup ? std::optional(row.speedup->ratio) : std::nullopt;
       })) {
    if (covers_plane(map) && count < kMaxHeatMaps) {
      figures.add(fmt::format("speedup_map_{}", ++count), map,
                  "Blue is faster than the first strategy, orange slower; empty fields were not "
                  "run or have nothing to be compared with.",
                  "");
    }
  }
}

}  // namespace

void add_sweep(const Report& report, FigureList& figures) {
  const SweepAxis axis(report);
  if (!axis.is_usable()) {
    figures.leave_out("Speed-up along a sweep", "the run has none; see `sweep:` in a config.");
    return;
  }
  LinePlot plot{.title = "Speed-up along the sweep",
                .x_label = axis.key(),
                .y_label = "speed-up over the first strategy",
                .series = sweep_series(report, axis,
                                       [](const SummaryRow& row) -> std::optional<PlotPoint> {
                                         if (!row.speedup) {
                                           return std::nullopt;
                                         }
                                         return PlotPoint{.y = row.speedup->ratio,
                                                          .interval = row.speedup->interval};
                                       }),
                .x_names = axis.tick_names(),
                .reference = 1.0,
                .y_max = {}};
  figures.add("sweep_speedup", plot,
              interval_sentence(plot.series,
                                "Bars are 95 % intervals over questions; where they overlap, the "
                                "best setting is uncertain.")
                  .substr(1),
              "no strategy could be compared with the first.");
  plot.title = "Tokens per step along the sweep";
  plot.y_label = "tokens per forward pass of the target";
  plot.series = sweep_series(report, axis, [](const SummaryRow& row) -> std::optional<PlotPoint> {
    const auto tokens = tokens_per_step(row.counts);
    return tokens ? std::optional(PlotPoint{.y = *tokens}) : std::nullopt;
  });
  figures.add("sweep_tokens_per_step", plot,
              "Where this rises while the speed-up falls, longer drafts cost more than they gain.",
              "nothing was measured.");
  add_heat_maps(report, figures);
}

}  // namespace specdec
