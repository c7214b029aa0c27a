#include "experiments/report/report_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "experiments/report/acceptance_tables.h"
#include "experiments/report/figure_list.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr size_t kMaxPositions = 24;
constexpr size_t kMaxLabels = 12;

constexpr const char* kNoPair = "no strategy could be compared with the first.";

void add_speedup(const Report& report, FigureList& figures) {
  DotPlot plot{.title = "Speed-up over all prompts",
               .x_label = "speed-up over the first strategy",
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
    plot.rows.push_back(row_name(report, *row));
    plot.series.push_back(std::move(series));
  }
  figures.add("speedup", plot,
              "Strategies to the right of the dashed line are faster than the first one." +
                  interval_sentence(plot.series,
                                    "Where the 95 % interval crosses it, no difference was shown."),
              kNoPair);
}

void add_speedup_by_category(const Report& report, FigureList& figures) {
  DotPlot plot{.title = "Speed-up by category of prompt",
               .x_label = "speed-up over the first strategy",
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
  figures.add("speedup_by_category", plot,
              "The same comparison within each category. Text that repeats itself or follows a "
              "pattern is easier to draft." +
                  interval_sentence(plot.series),
              "the prompts have no categories, or only one.");
}

/// Conditional acceptance by position, with n as label.
std::vector<PlotPoint> acceptance_points(const SummaryRow& row) {
  std::vector<PlotPoint> points;
  const auto rates = conditional_acceptance(row.counts);
  for (size_t i = 0; i < std::min(rates.size(), kMaxPositions); ++i) {
    if (rates[i]) {
      const int64_t n = row.counts.reached_at[i];
      points.push_back({.x = static_cast<double>(i + 1),
                        .y = *rates[i],
                        .interval = row.position_intervals.at(i).interval,
                        .label = fmt::format("n={}", n)});
    }
  }
  return points;
}

void add_acceptance(const Report& report, FigureList& figures) {
  LinePlot plot{.title = "Acceptance by position in the draft",
                .x_label = "position in the draft",
                .y_label = "share accepted, given all before it",
                .series = {},
                .x_names = {},
                .reference = {},
                .y_max = 1.08};
  size_t count = 0;
  for (const SummaryRow* row : fastest_rows(report)) {
    PlotSeries series = series_of(report, *row);
    series.points = acceptance_points(*row);
    count += series.points.size();
    plot.series.push_back(std::move(series));
  }
  ReportTable data = plot_data(plot);
  if (count > kMaxLabels) {
    for (PlotSeries& series : plot.series) {
      for (PlotPoint& point : series.points) {
        point.label.clear();
      }
    }
  }
  figures.add("acceptance", plot, std::move(data),
              "Share of the drafts that reached a position (n) whose token there was accepted. n "
              "is shown where there is room; the table has all. A falling line means that long "
              "drafts waste work, a level one that drafts could be longer." +
                  tree_sentence(report) + interval_sentence(plot.series),
              "no strategy drafted anything.");
}

void add_time_split(const Report& report, FigureList& figures) {
  StackedBarPlot plot{.title = "Decode time per token",
                      .x_label = "milliseconds per token",
                      .rows = {},
                      .parts = {{"drafting", {}}, {"target's forward pass", {}}, {"other", {}}}};
  const auto rows = fastest_rows(report);
  if (std::any_of(rows.begin(), rows.end(),
                  [](const SummaryRow* row) { return row->counts.discarded_seconds > 0.0; })) {
    plot.parts.push_back({"discarded samples", {}});
  }
  for (const SummaryRow* row : rows) {
    const auto split = time_split(row->counts);
    if (!split || row->counts.committed == 0) {
      continue;
    }
    const double milliseconds =
        1e3 * row->counts.decode_seconds / static_cast<double>(row->counts.committed);
    plot.rows.push_back(row_name(report, *row));
    plot.parts[0].values.push_back(milliseconds * split->draft);
    plot.parts[1].values.push_back(milliseconds * split->verify);
    plot.parts[2].values.push_back(milliseconds * split->other);
    if (plot.parts.size() > 3) {
      plot.parts[3].values.push_back(milliseconds * split->discarded);
    }
  }
  figures.add("time_split", plot,
              "Shorter is faster. Speculation pays when it saves more of the target's time than "
              "drafting adds.",
              "no time was measured.");
}

void add_tokens_per_step(const Report& report, FigureList& figures) {
  BarPlot plot{.title = "Tokens per step",
               .x_label = "tokens committed by one forward pass of the target",
               .y_label = "share of steps",
               .series = {}};
  for (const SummaryRow* row : fastest_rows(report)) {
    const std::vector<int64_t>& histogram = row->counts.steps_committing;
    if (row->counts.drafting_steps == 0) {
      continue;
    }
    PlotSeries series = series_of(report, *row);
    for (size_t n = 1; n < std::min(histogram.size(), kMaxPositions); ++n) {
      series.points.push_back(
          {.x = static_cast<double>(n),
           .y = static_cast<double>(histogram[n]) / static_cast<double>(row->counts.steps)});
    }
    plot.series.push_back(std::move(series));
  }
  figures.add("tokens_added", plot,
              "Steps that commit one token gained nothing from their draft. A peak at the right "
              "end means that whole drafts are often accepted, so longer ones may pay.",
              "no strategy drafted anything.");
}

}  // namespace

std::string interval_sentence(const std::vector<PlotSeries>& all, const std::string& sentence) {
  return " " + (has_intervals(all) ? sentence : "There are too few questions for intervals.");
}

PlotSeries series_of(const Report& report, const SummaryRow& row) {
  return {
      .name = row_name(report, row), .style = strategy_index(report, row.strategy), .points = {}};
}

ReportFigures draw_figures(const Report& report) {
  FigureList figures;
  add_speedup(report, figures);
  add_question_dots(report, figures);
  add_speedup_by_category(report, figures);
  add_sweep(report, figures);
  add_frontier(report, figures);
  add_speed_by_answers(report, figures);
  add_speed_by_log_prob(report, figures);
  add_time_split(report, figures);
  add_acceptance(report, figures);
  add_tokens_per_step(report, figures);
  add_cost_curve(report, figures);
  add_predictions(report, figures);
  add_rank_trees(report, figures);
  add_attention_ages(report, figures);
  return figures.take();
}

}  // namespace specdec
