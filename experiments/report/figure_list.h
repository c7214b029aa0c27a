#pragma once
#include <optional>
#include <string>
#include <utility>

#include "experiments/report/drawing.h"
#include "experiments/report/report_figures.h"
#include "experiments/report/svg_plot.h"

namespace specdec {

/// The numbers of a plot, a line a point.
ReportTable plot_data(const LinePlot& plot);
ReportTable plot_data(const BarPlot& plot);
ReportTable plot_data(const DotPlot& plot);
ReportTable plot_data(const StackedBarPlot& plot);
ReportTable plot_data(const HeatMap& plot);

/// Draws figures one by one. What has no data is left out with the reason that its caller gives.
class FigureList {
 public:
  template <class Plot>
  void add(const std::string& id, const Plot& plot, std::string caption,
           const std::string& reason) {
    add(id, plot, plot_data(plot), std::move(caption), reason);
  }
  /// Adds a figure with numbers that the plot does not hold.
  template <class Plot>
  void add(const std::string& id, const Plot& plot, ReportTable data, std::string caption,
           const std::string& reason) {
    auto svg = draw(plot);
    if (!svg) {
      leave_out(plot.title, reason);
      return;
    }
    data.id = id;
    data.caption = plot.title + ". " + caption;
    all_.figures.push_back({id, plot.title, std::move(*svg), std::move(caption), std::move(data)});
  }
  void leave_out(std::string title, std::string reason) {
    all_.left_out.push_back({std::move(title), std::move(reason)});
  }
  ReportFigures take() { return std::move(all_); }

 private:
  ReportFigures all_;
};

/// What a caption says of the intervals of its figure, after a space.
std::string interval_sentence(
    const std::vector<PlotSeries>& all,
    const std::string& sentence = "Bars are 95 % intervals over questions.");

/// A strategy's name, and its fastest point where the run has a sweep.
PlotSeries series_of(const Report& report, const SummaryRow& row);

// The figures by what they show; report_figures.cpp puts them in order.
void add_question_dots(const Report& report, FigureList& figures);
void add_frontier(const Report& report, FigureList& figures);
void add_cost_curve(const Report& report, FigureList& figures);
void add_predictions(const Report& report, FigureList& figures);
void add_speed_by_log_prob(const Report& report, FigureList& figures);
void add_speed_by_answers(const Report& report, FigureList& figures);
void add_rank_trees(const Report& report, FigureList& figures);
void add_sweep(const Report& report, FigureList& figures);
void add_attention_ages(const Report& report, FigureList& figures);

}  // namespace specdec
