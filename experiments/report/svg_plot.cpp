#include "experiments/report/svg_plot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/report/gnuplot.h"
#include "experiments/report/plot_labels.h"
#include "experiments/report/plot_series.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr int64_t kWidth = 560;
constexpr int64_t kPlotHeight = 340;  // of which 200 are between the axes
constexpr size_t kLegendCharacters = 60;
constexpr size_t kRowCharacters = 32;
constexpr size_t kWideName = 22;
constexpr int64_t kLineHeight = 20;

constexpr std::array<const char*, 4> kPartColors = {"#56B4E9", "#0072B2", "#9A9A9A", "#CC79A7"};

/// The names below a figure's axes, where none can cover a line.
struct Legend {
  int64_t columns = 2;
  int64_t rows = 0;
};

template <class Named>
Legend legend_of(const std::vector<Named>& entries) {
  Legend legend;
  for (const Named& entry : entries) {
    if (count_characters(entry.name) > kWideName) {
      legend.columns = 1;
    }
  }
  legend.rows = (static_cast<int64_t>(entries.size()) + legend.columns - 1) / legend.columns;
  return legend;
}

/// What all figures share. `height` is without the legend.
std::string preamble(const std::string& title, const std::string& x_label, int64_t height,
                     const Legend& legend) {
  std::string script = fmt::format(
      "set encoding utf8\n"
      "set terminal svg size {},{} fixed noenhanced font 'sans-serif,13' linewidth 1\n"
      "set title {} font ',15'\n"
      "set xlabel {}{}\n"
      "set border 3 lc rgb 'black'\n"
      "set tics nomirror out scale 0.5\n"
      "set grid lc rgb '#9A9A9A' lw 0.4 dt 1\n"
      "set style fill solid 1.0 noborder\n"
      "set errorbars 0.6\n",
      kWidth, height + (legend.rows > 0 ? kLineHeight * (legend.rows + 1) : 0),
      quote_for_gnuplot(title, 90), quote_for_gnuplot(x_label, 90),
      legend.rows > 0 ? ".\"\\n\"" : "");  // an empty line keeps it off the legend
  if (legend.rows == 0) {
    return script + "unset key\n";
  }
  return script + fmt::format(
                      "set key bmargin center horizontal Left reverse noenhanced maxcols {} "
                      "maxrows {} samplen 2.5\n",
                      legend.columns, legend.rows);
}

/// Quotes the name of a tick, which gnuplot reads as a format.
std::string quote_tick(const std::string& name) {
  std::string quoted;
  for (const char c : quote_for_gnuplot(name, kRowCharacters)) {
    quoted += c == '%' ? std::string("%%") : std::string(1, c);
  }
  return quoted;
}

std::string tick_names(char axis, const std::vector<std::string>& names) {
  std::string script = fmt::format("set {}tics (", axis);
  for (size_t i = 0; i < names.size(); ++i) {
    script += fmt::format("{}{} {}", i == 0 ? "" : ", ", quote_tick(names[i]), i);
  }
  return script + ")\n";
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// gnuplot's document as an element of a page.
std::optional<std::string> draw_script(const std::string& script, const std::string& title) {
  auto output = run_gnuplot(script);
  if (!output) {
    return std::nullopt;
  }
  std::string& svg = *output;
  const size_t begin = svg.find("<svg");
  const size_t end = svg.rfind("</svg>");
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return std::nullopt;
  }
  svg = svg.substr(begin, end + 6 - begin);
  const size_t title_begin = svg.find("<title>");
  const size_t title_end = svg.find("</title>");
  if (title_begin != std::string::npos && title_end != std::string::npos) {
    svg.replace(title_begin, title_end - title_begin, "<title>" + escape_html(title));
  }
  svg.insert(4, " role=\"img\"");
  // gnuplot writes black in several ways; the page's own colour is also right on a dark page.
  replace_all(svg, " color=\"black\"", "");
  for (const char* black : {"black", "rgb(0,0,0)", "rgb(  0,   0,   0)"}) {
    for (const char* attribute : {"fill=\"{}\"", "stroke=\"{}\"", "stroke='{}'"}) {
      replace_all(svg, fmt::format(fmt::runtime(attribute), black),
                  fmt::format(fmt::runtime(attribute), "currentColor"));
    }
  }
  replace_all(svg, "color='white'", "color='transparent'");  // halos of marks
  return output;
}

std::string reference_line(char axis, const std::optional<double>& at) {
  if (!at) {
    return "";
  }
  const bool upright = axis == 'x';
  return fmt::format(
      "set arrow from {} to {} nohead lc rgb '#7A7A7A' lw 1.2 dt 2 back\n",
      upright ? fmt::format("first {}, graph 0", *at) : fmt::format("graph 0, first {}", *at),
      upright ? fmt::format("first {}, graph 1", *at) : fmt::format("graph 1, first {}", *at));
}

/// An axis: where it begins and ends, and gnuplot's commands for it.
struct Axis {
  Interval range;
  std::string script;
};

std::string x_range_command(const Interval& range) {
  return fmt::format("set xrange [{}:{}]\n", range.low, range.high);
}

/// Ticks only where points are, while they are few.
Axis x_ticks(const std::vector<PlotSeries>& all) {
  std::vector<double> xs;
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      xs.push_back(point.x);
    }
  }
  std::sort(xs.begin(), xs.end());
  xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
  const double margin = std::max(0.5 * (xs.back() - xs.front()) / static_cast<double>(xs.size()),
                                 xs.size() == 1 ? 0.5 : 1e-12);
  Axis axis{.range = {xs.front() - 0.5 * margin, xs.back() + 0.5 * margin}, .script = ""};
  axis.script = x_range_command(axis.range);
  if (xs.size() <= 17) {
    axis.script += fmt::format("set xtics ({})\n", fmt::join(xs, ", "));
  }
  return axis;
}

/// Some room beside the points; gnuplot chooses the ticks.
Axis x_range(const LinePlot& plot, const std::vector<PlotSeries>& all) {
  Interval range{.low = kInfinity, .high = -kInfinity};
  const auto include = [&](double low, double high) {
    range.low = std::min(range.low, low);
    range.high = std::max(range.high, high);
  };
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      const Interval own = point.x_interval.value_or(Interval{point.x, point.x});
      include(std::min(point.x, own.low), std::max(point.x, own.high));
    }
  }
  const double reference = plot.x_reference.value_or(range.low);
  include(std::min(range.low, reference), std::max(range.high, reference));
  const double margin = std::max(0.04 * (range.high - range.low), 1e-3);
  const double low = range.low - margin;
  const Interval wider{range.low < 0.0 || plot.x_reference ? low : std::max(0.0, low),
                       range.high + margin};
  return {wider, x_range_command(wider)};
}

/// Room for the outer bars.
std::string bar_range(const std::vector<PlotSeries>& all) {
  double low = kInfinity;
  double high = -kInfinity;
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      low = std::min(low, point.x);
      high = std::max(high, point.x);
    }
  }
  return fmt::format("set xrange [{}:{}]\n", low - 0.6, high + 0.6);
}

/// Bars of one colour differ in their pattern.
std::string bar_fill(size_t style) {
  constexpr std::array<int, 4> kPatterns = {2, 4, 6, 1};
  const size_t round = style_round(style);
  return round == 0 ? "solid 1.0 noborder"
                    : fmt::format("pattern {}", kPatterns[(round - 1) % kPatterns.size()]);
}

}  // namespace

std::optional<std::string> draw(const LinePlot& plot) {
  const std::vector<PlotSeries> series = drawn(plot.series);
  if (series.empty()) {
    return std::nullopt;
  }
  std::string script = preamble(plot.title, plot.x_label, kPlotHeight, legend_of(series));
  script += fmt::format("set ylabel {}\n", quote_for_gnuplot(plot.y_label, 60));
  const Axis axis = plot.numeric_x ? x_range(plot, series) : x_ticks(series);
  script += axis.script;
  if (!plot.x_names.empty()) {
    script += tick_names('x', plot.x_names);
  }
  const double top = std::max(extent(series, false).high, plot.reference.value_or(0.0)) * 1.08;
  const Interval y{0.0, plot.y_max.value_or(top > 0.0 ? top : 1.0)};
  script += fmt::format("set yrange [0:{}]\n", y.high);
  script += label_commands(series, {axis.range, y});
  script += reference_line('y', plot.reference) + reference_line('x', plot.x_reference) +
            data_blocks(series);
  return draw_script(script + plot_command(series, "yerrorbars"), plot.title);
}

std::optional<std::string> draw(const BarPlot& plot) {
  const std::vector<PlotSeries> series = drawn(plot.series);
  if (series.empty()) {
    return std::nullopt;
  }
  std::string data;
  std::string command = "plot ";
  const double width = 0.8 / static_cast<double>(series.size());
  for (size_t i = 0; i < series.size(); ++i) {
    data += fmt::format("$bars{} << END\n", i);
    for (const PlotPoint& point : series[i].points) {
      const double low = point.x - 0.4 + width * static_cast<double>(i);
      data += fmt::format("{} {} {} {} 0 {}\n", low + 0.5 * width, 0.5 * point.y,
                          low + 0.06 * width, low + 0.94 * width, point.y);
    }
    data += "END\n";
    command += fmt::format("$bars{} using 1:2:3:4:5:6 with boxxyerror fs {} lc rgb '{}' title {}{}",
                           i, bar_fill(series[i].style), style_color(series[i].style),
                           quote_for_gnuplot(series[i].name, kLegendCharacters),
                           i + 1 < series.size() ? ", " : "\n");
  }
  const double top = extent(series, false).high * 1.08;
  return draw_script(preamble(plot.title, plot.x_label, kPlotHeight, legend_of(series)) +
                         fmt::format("set ylabel {}\n", quote_for_gnuplot(plot.y_label, 60)) +
                         x_ticks(series).script + bar_range(series) +
                         fmt::format("unset grid\nset grid y lc rgb '#9A9A9A' lw 0.4 dt 1\n"
                                     "set yrange [0:{}]\n",
                                     top > 0.0 ? top : 1.0) +
                         data + command,
                     plot.title);
}

std::optional<std::string> draw(const DotPlot& plot) {
  std::vector<PlotSeries> series = drawn(plot.series);
  if (series.empty() || plot.rows.empty()) {
    return std::nullopt;
  }
  // Within a row the series stand below each other, in the middle 70 % of its height.
  const double step = plot.legend ? 0.7 / static_cast<double>(series.size()) : 0.0;
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].mark == PlotMark::kLineAndPoints) {
      series[i].mark = PlotMark::kPoints;  // rows have no order that a line could show
    }
    for (PlotPoint& point : series[i].points) {
      point.y += step * (static_cast<double>(i) - 0.5 * static_cast<double>(series.size() - 1));
    }
  }
  const auto rows = static_cast<int64_t>(plot.rows.size());
  const auto marks = plot.legend ? static_cast<int64_t>(series.size()) : 1;
  std::string script =
      preamble(plot.title, plot.x_label, 110 + rows * std::max<int64_t>(30, 12 + 13 * marks),
               plot.legend ? legend_of(series) : Legend());
  script += tick_names('y', plot.rows) +
            fmt::format("set yrange [{}:-0.5]\n", static_cast<double>(rows) - 0.5);
  Interval range = extent(series, true);
  range.low = std::min(range.low, plot.reference.value_or(range.low));
  range.high = std::max(range.high, plot.reference.value_or(range.high));
  const double margin = std::max(0.08 * (range.high - range.low), 0.02);
  script +=
      fmt::format("set xrange [{}:{}]\n", std::max(0.0, range.low - margin), range.high + margin);
  script += reference_line('x', plot.reference) + data_blocks(series);
  return draw_script(script + plot_command(series, "xerrorbars"), plot.title);
}

std::optional<std::string> draw(const StackedBarPlot& plot) {
  std::vector<double> ends(plot.rows.size(), 0.0);
  std::string data;
  std::string command;
  for (size_t i = 0; i < plot.parts.size(); ++i) {
    const StackedBarPlot::Part& part = plot.parts[i];
    data += fmt::format("$part{} << END\n", i);
    for (size_t row = 0; row < ends.size(); ++row) {
      const double begin = ends[row];
      ends[row] += std::isfinite(part.values.at(row)) ? part.values[row] : 0.0;
      const double middle = 0.5 * (begin + ends[row]);
      data += fmt::format("{} {} {} {} {} {}\n", middle, row, begin, ends[row],
                          static_cast<double>(row) - 0.3, static_cast<double>(row) + 0.3);
    }
    data += "END\n";
    command += fmt::format("{}$part{} using 1:2:3:4:5:6 with boxxyerror lc rgb '{}' title {}",
                           i == 0 ? "plot " : ", ", i, kPartColors[i % kPartColors.size()],
                           quote_for_gnuplot(part.name, kLegendCharacters));
  }
  const double longest = ends.empty() ? 0.0 : *std::max_element(ends.begin(), ends.end());
  if (!(longest > 0.0)) {
    return std::nullopt;
  }
  const auto rows = static_cast<int64_t>(plot.rows.size());
  std::string script = preamble(plot.title, plot.x_label, 115 + 30 * rows, legend_of(plot.parts));
  script += tick_names('y', plot.rows) +
            fmt::format(
                "set yrange [{}:-0.5]\nset xrange [0:{}]\nunset grid\nset grid x lc rgb "
                "'#9A9A9A' lw 0.4 dt 1\n",
                static_cast<double>(rows) - 0.5, 1.05 * longest);
  return draw_script(script + data + command + "\n", plot.title);
}

bool can_draw() { return run_gnuplot("print 'ready'").has_value(); }

}  // namespace specdec
