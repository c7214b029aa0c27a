#include "experiments/report/report_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "experiments/report/report_text.h"
#include "experiments/report/svg_plot.h"

namespace specdec {
namespace {

constexpr size_t kMostLines = 14;
constexpr size_t kMostPositions = 24;

/// Adds a figure that could be drawn.
template <class Plot>
void add(std::vector<ReportFigure>& figures, const Plot& plot, std::string caption) {
  if (auto svg = draw(plot)) {
    figures.push_back({std::move(*svg), std::move(caption)});
  }
}

/// A strategy's name, and its fastest point where the run has a sweep.
PlotSeries series_of(const Report& report, const SummaryRow& row) {
  return {.name = row_name(row), .style = strategy_index(report, row.strategy), .points = {}};
}

void add_speedup(const Report& report, std::vector<ReportFigure>& figures) {
  DotPlot plot{.title = "Speed-up over all prompts",
               .x_label = "times as fast as the first strategy (95 % interval)",
               .rows = {},
               .series = {},
               .reference = 1.0,
               .legend = false};
  for (const SummaryRow* row : fastest_rows(report)) {
    if (!row->speedup) {
      continue;
    }
    PlotSeries series = series_of(report, *row);
    series.points.push_back({.x = row->speedup->ratio,
                             .y = static_cast<double>(plot.rows.size()),
                             .interval = row->speedup->interval});
    plot.rows.push_back(row_name(*row));
    plot.series.push_back(std::move(series));
  }
  add(figures, plot,
      "Right of the dashed line is faster than the first strategy. A bar that crosses it shows no "
      "difference.");
}

void add_speedup_by_category(const Report& report, std::vector<ReportFigure>& figures) {
  DotPlot plot{.title = "Speed-up by category of prompt",
               .x_label = "times as fast as the first strategy (95 % interval)",
               .rows = {},
               .series = {},
               .reference = 1.0};
  for (const SummaryRow* fastest : fastest_rows(report)) {
    PlotSeries series = series_of(report, *fastest);
    for (const SummaryRow& row : report.summary.rows) {
      if (row.category.empty() || row.strategy != fastest->strategy ||
          row.sweep_point != fastest->sweep_point || !row.speedup) {
        continue;
      }
      const auto found = std::find(plot.rows.begin(), plot.rows.end(), row.category);
      series.points.push_back({.x = row.speedup->ratio,
                               .y = static_cast<double>(found - plot.rows.begin()),
                               .interval = row.speedup->interval});
      if (found == plot.rows.end()) {
        plot.rows.push_back(row.category);
      }
    }
    plot.series.push_back(std::move(series));
  }
  add(figures, plot,
      "The same comparison within each kind of prompt. What repeats or follows a pattern is easier "
      "to draft.");
}

void add_acceptance(const Report& report, std::vector<ReportFigure>& figures) {
  LinePlot plot{.title = "Acceptance by position in the draft",
                .x_label = "position in the draft",
                .y_label = "accepted, given all before it",
                .series = {},
                .x_names = {},
                .reference = {},
                .y_max = 1.0};
  for (const SummaryRow* row : fastest_rows(report)) {
    PlotSeries series = series_of(report, *row);
    const auto rates = conditional_acceptance(row->counts);
    for (size_t i = 0; i < std::min(rates.size(), kMostPositions); ++i) {
      if (rates[i]) {
        series.points.push_back({.x = static_cast<double>(i + 1), .y = *rates[i]});
      }
    }
    plot.series.push_back(std::move(series));
  }
  add(figures, plot,
      "Of the drafts that got as far as a position, the share whose token there was accepted. A "
      "falling line says that long drafts waste work; a level one, that they may grow.");
}

void add_time_split(const Report& report, std::vector<ReportFigure>& figures) {
  StackedBarPlot plot{.title = "Where the time of a token goes",
                      .x_label = "milliseconds per token (decode)",
                      .rows = {},
                      .parts = {{"making drafts", {}}, {"target's forward", {}}, {"other", {}}}};
  for (const SummaryRow* row : fastest_rows(report)) {
    const auto split = time_split(row->counts);
    if (!split || row->counts.committed == 0) {
      continue;
    }
    const double milliseconds =
        1e3 * row->counts.decode_seconds / static_cast<double>(row->counts.committed);
    plot.rows.push_back(row_name(*row));
    plot.parts[0].values.push_back(milliseconds * split->draft);
    plot.parts[1].values.push_back(milliseconds * split->verify);
    plot.parts[2].values.push_back(milliseconds * split->other);
  }
  add(figures, plot,
      "A shorter bar is a faster strategy. Speculation pays when the target's part shrinks by more "
      "than making drafts adds.");
}

void add_tokens_per_step(const Report& report, std::vector<ReportFigure>& figures) {
  LinePlot plot{.title = "Tokens added by a step",
                .x_label = "tokens added by one forward of the target",
                .y_label = "share of steps",
                .series = {},
                .x_names = {},
                .reference = {},
                .y_max = {}};
  for (const SummaryRow* row : fastest_rows(report)) {
    const std::vector<int64_t>& histogram = row->counts.steps_committing;
    if (row->counts.drafting_steps == 0) {
      continue;
    }
    PlotSeries series = series_of(report, *row);
    for (size_t n = 1; n < std::min(histogram.size(), kMostPositions); ++n) {
      series.points.push_back(
          {.x = static_cast<double>(n),
           .y = static_cast<double>(histogram[n]) / static_cast<double>(row->counts.steps)});
    }
    plot.series.push_back(std::move(series));
  }
  add(figures, plot,
      "Steps that add one token gained nothing from their draft; a peak at the right end says that "
      "whole drafts are often accepted, so longer ones may pay.");
}

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
  all.resize(std::min(all.size(), kMostLines));
  return all;
}

void add_sweep(const Report& report, std::vector<ReportFigure>& figures) {
  const SweepAxis axis(report);
  if (!axis.is_usable()) {
    return;
  }
  LinePlot plot{.title = "Speed-up along the sweep",
                .x_label = axis.key(),
                .y_label = "times as fast as the first strategy",
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
  add(figures, plot,
      "Bars are 95 % intervals. Where they overlap, the top of a curve is not sharp.");
  plot.title = "Tokens per step along the sweep";
  plot.y_label = "tokens per forward of the target";
  plot.series = sweep_series(report, axis, [](const SummaryRow& row) -> std::optional<PlotPoint> {
    const auto tokens = tokens_per_step(row.counts);
    return tokens ? std::optional(PlotPoint{.y = *tokens}) : std::nullopt;
  });
  add(figures, plot,
      "What each step yields. While it rises and the speed-up falls, the added drafts cost more "
      "than "
      "they bring.");
}

}  // namespace

std::vector<ReportFigure> draw_figures(const Report& report) {
  std::vector<ReportFigure> figures;
  if (!can_draw()) {
    return figures;
  }
  add_speedup(report, figures);
  add_speedup_by_category(report, figures);
  add_sweep(report, figures);
  add_acceptance(report, figures);
  add_tokens_per_step(report, figures);
  add_time_split(report, figures);
  return figures;
}

}  // namespace specdec
