#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "experiments/report/figure_list.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr int64_t kFrontierContext = 128;
constexpr size_t kMaxContexts = 3;
constexpr double kMinShare = 0.05;

/// Seconds of a forward by the number of its tokens.
struct ForwardCosts {
  std::map<int64_t, double> seconds;
  std::string origin;
};

/// The frozen curve at the context nearest to kFrontierContext; else the medians of the run's own
/// steps.
ForwardCosts forward_costs(const Report& report) {
  ForwardCosts costs;
  const ReportDetails& details = report.details;
  if (!details.cost_curve.empty()) {
    const CostCurve curve{details.cost_curve};
    for (const CostPoint& point : details.cost_curve) {
      costs.seconds[point.new_tokens] = curve.seconds(point.new_tokens, kFrontierContext);
    }
    costs.origin = "the cost curve measured before the run";
    return costs;
  }
  int64_t steps = 0;
  for (const WidthCost& width : details.widths) {
    steps += width.steps;
  }
  for (const WidthCost& width : details.widths) {
    // The few short drafts at the ends of generations follow long ones, which makes them slow.
    if (static_cast<double>(width.steps) >= kMinShare * static_cast<double>(steps)) {
      costs.seconds[width.width] = width.median;
    }
  }
  costs.origin = "the medians of this run's forward passes";
  return costs;
}

/// Linear between the known numbers of tokens, the last slope beyond them.
double seconds_at(const ForwardCosts& costs, double tokens) {
  auto upper = costs.seconds.lower_bound(static_cast<int64_t>(std::ceil(tokens)));
  if (upper == costs.seconds.end()) {
    --upper;
  }
  if (upper == costs.seconds.begin()) {
    ++upper;
  }
  const auto lower = std::prev(upper);
  const double share = (tokens - static_cast<double>(lower->first)) /
                       static_cast<double>(upper->first - lower->first);
  return lower->second + share * (upper->second - lower->second);
}

/// tokens * v(1) / v(tokens): free drafts without a rejected token.
PlotSeries frontier(const ForwardCosts& costs, double most) {
  PlotSeries series{
      .name = "frontier by v(n)", .style = 0, .points = {}, .mark = PlotMark::kDashes};
  const double plain = costs.seconds.at(1);
  const auto steps = static_cast<int>(4.0 * (most - 1.0));
  for (int step = 0; step <= steps; ++step) {
    const double tokens = 1.0 + 0.25 * step;
    series.points.push_back({.x = tokens, .y = tokens * plain / seconds_at(costs, tokens)});
  }
  return series;
}

/// The marks of a strategy at all points of the sweep.
PlotSeries& marks_of(const Report& report, const std::string& strategy,
                     std::vector<PlotSeries>& all) {
  const auto series = std::find_if(all.begin(), all.end(),
                                   [&](const PlotSeries& each) { return each.name == strategy; });
  return series != all.end()
             ? *series
             : all.emplace_back(PlotSeries{.name = strategy,
                                           .style = strategy_index(report, strategy),
                                           .points = {},
                                           .mark = PlotMark::kPoints});
}

/// A strategy's rows over all prompts, one for each point of the sweep.
std::vector<PlotSeries> speed_series(const Report& report) {
  std::vector<PlotSeries> all;
  for (const SummaryRow& row : report.summary.rows) {
    const auto tokens = tokens_per_step(row.counts);
    if (!row.category.empty() || !row.speedup || !tokens) {
      continue;
    }
    marks_of(report, row.strategy, all)
        .points.push_back(
            {.x = *tokens, .y = row.speedup->ratio, .interval = row.speedup->interval});
  }
  return all;
}

double largest_x(const std::vector<PlotSeries>& all) {
  double largest = 1.0;
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      largest = std::max(largest, point.x);
    }
  }
  return largest;
}

/// Contexts to show: up to kMaxContexts of those that were measured, the longest among them.
std::vector<int64_t> shown_contexts(const std::vector<CostPoint>& curve) {
  std::set<int64_t> contexts;
  for (const CostPoint& point : curve) {
    contexts.insert(point.context);
  }
  while (contexts.size() > kMaxContexts) {
    contexts.erase(std::next(contexts.begin()));
  }
  return {contexts.begin(), contexts.end()};
}

PlotSeries context_series(const std::vector<CostPoint>& curve, int64_t context, size_t style) {
  PlotSeries series{.name = fmt::format("v(n) after {} tokens", context),
                    .style = style,
                    .points = {},
                    .mark = PlotMark::kLineAndPoints};
  for (const CostPoint& point : curve) {
    if (point.context == context) {
      series.points.push_back(
          {.x = static_cast<double>(point.new_tokens), .y = 1e3 * point.seconds});
    }
  }
  std::sort(series.points.begin(), series.points.end(),
            [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  return series;
}

}  // namespace

void add_question_dots(const Report& report, FigureList& figures) {
  DotPlot plot{.title = "Speed-up of each question",
               .x_label = "speed-up over the first strategy",
               .rows = {},
               .series = {},
               .reference = 1.0,
               .legend = false};
  ReportTable data{.id = "",
                   .caption = "",
                   .header = {"strategy", "question", "speed-up"},
                   .rows = {},
                   .names = 2,
                   .styles = {}};
  for (const SummaryRow* row : fastest_rows(report)) {
    PlotSeries dots = series_of(report, *row);
    dots.mark = PlotMark::kDots;
    const auto place = static_cast<double>(plot.rows.size());
    for (const QuestionResult& result : report.details.questions) {
      if (result.strategy == row->strategy && result.sweep_point == row->sweep_point &&
          result.speedup) {
        // Beside each other in three heights, so that equal ones show.
        const double height = 0.14 * static_cast<double>(dots.points.size() % 3) - 0.14;
        dots.points.push_back({.x = *result.speedup, .y = place + height});
        data.rows.push_back(
            {row_name(report, *row), result.question, number_text(result.speedup, 4)});
      }
    }
    if (dots.points.empty()) {
      continue;
    }
    if (row->speedup) {
      PlotSeries mean = series_of(report, *row);
      mean.points.push_back(
          {.x = row->speedup->ratio, .y = place, .interval = row->speedup->interval});
      plot.series.push_back(std::move(mean));
    }
    plot.series.push_back(std::move(dots));
    plot.rows.push_back(row_name(report, *row));
  }
  figures.add("questions", plot, std::move(data),
              "Each dot is a question; the large mark is the mean over all. A wide spread means "
              "that the gain depends more on the text than on the strategy." +
                  interval_sentence(plot.series),
              "no question was answered by a strategy and by the first one.");
}

void add_frontier(const Report& report, FigureList& figures) {
  LinePlot plot{.title = "Speed-up against tokens per step",
                .x_label = "tokens per forward pass of the target",
                .y_label = "speed-up over the first strategy",
                .series = speed_series(report),
                .x_names = {},
                .reference = 1.0,
                .y_max = {},
                .numeric_x = true};
  if (plot.series.empty()) {
    figures.leave_out(plot.title, "no strategy could be compared with the first.");
    return;
  }
  const ForwardCosts costs = forward_costs(report);
  std::string caption =
      "The frontier is missing: the cost of a forward pass was not measured at several widths.";
  if (costs.seconds.contains(1) && costs.seconds.size() >= 2) {
    plot.series.push_back(frontier(costs, largest_x(plot.series) + 1.0));
    caption = fmt::format(
        "The dashed line, n v(1) / v(n), is the speed-up of free and perfect drafts: n tokens for "
        "the cost v(n) of one forward pass over n tokens. The distance below it is what drafting "
        "and rejected tokens cost. v(n) is taken from {}.",
        costs.origin);
  }
  figures.add("speedup_by_tokens", plot, caption, "nothing could be drawn.");
}

void add_cost_curve(const Report& report, FigureList& figures) {
  const ReportDetails& details = report.details;
  LinePlot plot{.title = "Cost of a forward pass over n tokens, v(n)",
                .x_label = "n, tokens in one forward pass of the target",
                .y_label = "milliseconds",
                .series = {},
                .x_names = {},
                .reference = {},
                .y_max = {},
                .numeric_x = true};
  size_t style = 1;
  for (const int64_t context : shown_contexts(details.cost_curve)) {
    plot.series.push_back(context_series(details.cost_curve, context, style++));
  }
  PlotSeries own{.name = "steps of this run (median, quartiles)",
                 .style = style,
                 .points = {},
                 .mark = PlotMark::kPoints};
  for (const WidthCost& width : details.widths) {
    own.points.push_back({.x = static_cast<double>(width.width),
                          .y = 1e3 * width.median,
                          .interval = Interval{1e3 * width.low, 1e3 * width.high}});
  }
  plot.series.push_back(std::move(own));
  figures.add("cost_curve", plot,
              "Where the curve is flat, verifying more tokens is nearly free; where it rises in "
              "proportion to n, drafts pay only if almost all of their tokens are accepted.",
              "no forward pass was timed.");
}

void add_predictions(const Report& report, FigureList& figures) {
  LinePlot plot{.title = "Predicted and measured speed-up",
                .x_label = "speed-up predicted from the cost curve",
                .y_label = "measured speed-up",
                .series = {},
                .x_names = {},
                .reference = {},
                .y_max = {},
                .numeric_x = true};
  double most = 1.0;
  for (const SpeedPrediction& prediction : report.details.predictions) {
    for (const SummaryRow& row : report.summary.rows) {
      if (!row.category.empty() || row.strategy != prediction.strategy ||
          row.sweep_point != prediction.sweep_point || !row.speedup) {
        continue;
      }
      marks_of(report, row.strategy, plot.series)
          .points.push_back({.x = prediction.speedup, .y = row.speedup->of_totals});
      most = std::max({most, prediction.speedup, row.speedup->of_totals});
    }
  }
  if (plot.series.empty()) {
    figures.leave_out(plot.title,
                      "no cost curve was measured; add `trace: {depth: 8}` to the config.");
    return;
  }
  plot.series.push_back({.name = "as predicted",
                         .style = 0,
                         .points = {{.x = 0.0, .y = 0.0}, {.x = 1.1 * most, .y = 1.1 * most}},
                         .mark = PlotMark::kDashes});
  figures.add(
      "predictions", plot,
      "The prediction charges each step v(drafted + 1) plus its measured drafting and "
      "other time, and plain decoding v(1) plus its median other time per token. Measured "
      "is the ratio of total times, which it is a prediction of. A mark off the line means that "
      "forward passes in the run took a different time than when the curve was measured.",
      "nothing could be drawn.");
}

void add_rank_trees(const Report& report, FigureList& figures) {
  if (report.details.trees.empty()) {
    figures.leave_out("Tree of drafts with hit rates",
                      "drafters were not traced; add `trace: {depth: 6, width: 4}` to the config.");
    return;
  }
  size_t count = 0;
  std::vector<const HitTree*> shown;
  for (const HitTree& tree : report.details.trees) {
    if (std::any_of(shown.begin(), shown.end(), [&](const HitTree* other) {
          return other->strategy == tree.strategy && other->nodes == tree.nodes;
        })) {
      continue;  // at this point of the sweep it drafts the same
    }
    shown.push_back(&tree);
    const std::string name = arm_name(report.summary.rows, tree.strategy, tree.sweep_point);
    ReportTable data{.id = "",
                     .caption = "",
                     .header = {"node", "parent", "position", "choice", "hits", "of positions"},
                     .rows = {},
                     .names = 0,
                     .styles = {}};
    for (size_t i = 0; i < tree.nodes.size(); ++i) {
      const HitNode& node = tree.nodes[i];
      data.rows.push_back({fmt::format("{}", i + 1), fmt::format("{}", node.parent + 1),
                           fmt::format("{}", node.depth), fmt::format("{}", node.rank + 1),
                           fmt::format("{}", node.hits), fmt::format("{}", tree.positions)});
    }
    figures.add(
        fmt::format("tree_{}", ++count),
        TreeDrawing{.title = "Hit rates of " + name,
                    .tree = tree,
                    .style = strategy_index(report, tree.strategy)},
        std::move(data),
        fmt::format("The {} that the text followed most often, over {} positions: "
                    "the drafter's first choices go straight on, second and later ones "
                    "below. No other tree of this size has more accepted tokens.",
                    tree.nodes.size() == 1 ? "path" : fmt::format("{} paths", tree.nodes.size()),
                    tree.positions),
        "");
  }
}

}  // namespace specdec
