#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "experiments/report/figure_list.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr const char* kSpeedLabel = "speed-up over the first strategy";

/// Where a row stands along the quality axis.
struct QualityPlace {
  double value = 0.0;
  std::optional<Interval> interval = {};
};

/// Collects rows as marks: a strategy looks the same at all points of the sweep.
class QualityPlot {
 public:
  QualityPlot(const Report& report, std::string title, std::string x_label)
      : report_(report),
        plot_{.title = std::move(title),
              .x_label = std::move(x_label),
              .y_label = kSpeedLabel,
              .series = {},
              .x_names = {},
              .reference = 1.0,
              .y_max = {},
              .numeric_x = true},
        data_{.id = "",
              .caption = "",
              .header = {"strategy", plot_.x_label, "low", "high", kSpeedLabel, "speed low",
                         "speed high"},
              .rows = {},
              .styles = {}} {}

  void add(const SummaryRow& row, const QualityPlace& place) {
    const Speedup speedup = row.speedup.value_or(Speedup{.ratio = 1.0});
    auto series = std::find_if(plot_.series.begin(), plot_.series.end(),
                               [&](const PlotSeries& each) { return each.name == row.strategy; });
    if (series == plot_.series.end()) {
      series =
          plot_.series.insert(plot_.series.end(), {.name = row.strategy,
                                                   .style = strategy_index(report_, row.strategy),
                                                   .points = {},
                                                   .mark = PlotMark::kPoints});
    }
    series->points.push_back({.x = place.value,
                              .y = speedup.ratio,
                              .interval = speedup.interval,
                              .x_interval = place.interval});
    const auto limits = [](const std::optional<Interval>& interval, double Interval::*limit) {
      return number_text(interval ? std::optional((*interval).*limit) : std::nullopt, 4);
    };
    data_.rows.push_back({row_name(report_, row), number_text(place.value, 4),
                          limits(place.interval, &Interval::low),
                          limits(place.interval, &Interval::high), number_text(speedup.ratio, 4),
                          limits(speedup.interval, &Interval::low),
                          limits(speedup.interval, &Interval::high)});
  }

  void finish(const std::string& id, double reference, std::string caption, FigureList& figures) {
    plot_.x_reference = reference;
    caption += interval_sentence(plot_.series);
    figures.add(id, plot_, data_, std::move(caption), "nothing could be drawn.");
  }

 private:
  const Report& report_;
  LinePlot plot_;
  ReportTable data_;
};

/// Over all prompts, and the first strategy or compared with it.
bool is_shown(const SummaryRow& row) {
  return row.category.empty() && (row.is_first || row.speedup);
}

bool is_lossless(const Report& report, const std::string& name) {
  const size_t index = strategy_index(report, name);
  return index < report.strategies.size() && !report.strategies[index].lossy &&
         report.strategies[index].uncertified.empty();
}

template <class Has>
const SummaryRow* find_row(const Report& report, Has has) {
  const auto& rows = report.summary.rows;
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const SummaryRow& row) { return is_shown(row) && has(row); });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

void add_speed_by_log_prob(const Report& report, FigureList& figures) {
  const std::string title = "Speed-up against log-probability of the text";
  if (find_row(report, [](const SummaryRow& row) { return row.log_probs.has_value(); }) ==
      nullptr) {
    figures.leave_out(title, "no lossy strategy was measured beside a lossless first one.");
    return;
  }
  QualityPlot plot(report, title, "nats per token, difference from the first strategy's texts");
  for (const SummaryRow& row : report.summary.rows) {
    if (is_shown(row) && row.log_probs) {
      plot.add(row, {row.log_probs->difference, row.log_probs->interval});
    } else if (is_shown(row) && is_lossless(report, row.strategy)) {
      plot.add(row, {});
    }
  }
  plot.finish(
      "speed_by_log_prob", 0.0,
      "Log-probability under the target. Lossless strategies stand at 0 by definition. Neither "
      "side is better: to the right, texts are more likely than the target's own samples, to the "
      "left less. A lossy strategy is only worth its loss if it is above everything at 0.",
      figures);
}

void add_speed_by_answers(const Report& report, FigureList& figures) {
  const std::string title = "Speed-up against correct answers";
  const SummaryRow* scored =
      find_row(report, [](const SummaryRow& row) { return row.quality.has_value(); });
  if (scored == nullptr) {
    figures.leave_out(title, "the prompts file names no `scorer`.");
    return;
  }
  QualityPlot plot(report, title,
                   "correct answers, difference from the first strategy (percentage points)");
  for (const SummaryRow& row : report.summary.rows) {
    if (is_shown(row) && row.quality) {
      plot.add(row, {100.0 * (row.quality->share - row.quality->first_share),
                     interval_in_points(*row.quality)});
    } else if (is_shown(row) && row.is_first) {
      plot.add(row, {});
    }
  }
  plot.finish(
      "speed_by_answers", -100.0 * scored->quality->margin,
      fmt::format(
          "The vertical dashed line is the non-inferiority margin, -{:g} points: a strategy whose "
          "95 % interval lies to the right of it is not worse by more than that.",
          100.0 * scored->quality->margin),
      figures);
}

}  // namespace specdec
