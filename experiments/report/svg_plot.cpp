#include "experiments/report/svg_plot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/report/gnuplot.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr int64_t kWidth = 760;
constexpr size_t kLegendCharacters = 44;
constexpr size_t kRowCharacters = 36;
constexpr size_t kWideName = 30;
constexpr int64_t kLineHeight = 20;

// Okabe and Ito's colours, which people with any colour vision tell apart, their yellow darkened to
// show on a light page and their black left out for dark ones; grey first, for the strategy that
// the others are compared with.
constexpr std::array<const char*, 8> kColors = {"#7A7A7A", "#0072B2", "#D55E00", "#009E73",
                                                "#CC79A7", "#E69F00", "#56B4E9", "#A39800"};
// Filled circle, square, triangle, lozenge, inverted triangle, pentagon; open circle and square.
constexpr std::array<int, 8> kMarks = {7, 5, 9, 13, 11, 15, 6, 4};
constexpr std::array<const char*, 4> kPartColors = {"#56B4E9", "#0072B2", "#9A9A9A", "#CC79A7"};

std::string line_style(size_t style) {
  return fmt::format("lc rgb '{}' lw 2 pt {} ps 0.8 dt {}", kColors[style % kColors.size()],
                     kMarks[style % kMarks.size()], 1 + style / kColors.size());
}

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

std::string tick_names(char axis, const std::vector<std::string>& names) {
  std::string script = fmt::format("set {}tics (", axis);
  for (size_t i = 0; i < names.size(); ++i) {
    script +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", quote_for_gnuplot(names[i], kRowCharacters), i);
  }
  return script + ")\n";
}

bool is_drawn(const PlotPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

/// Series with their finite points, those without any left out.
std::vector<PlotSeries> drawn(const std::vector<PlotSeries>& all) {
  std::vector<PlotSeries> kept;
  for (PlotSeries series : all) {
    std::erase_if(series.points, [](const PlotPoint& point) { return !is_drawn(point); });
    if (!series.points.empty()) {
      kept.push_back(std::move(series));
    }
  }
  return kept;
}

bool has_interval(const PlotPoint& point) {
  return point.interval && std::isfinite(point.interval->low) &&
         std::isfinite(point.interval->high);
}

/// $points<i> has x, y of series i; $intervals<i> x, y, low, high of those that have one.
std::string data_blocks(const std::vector<PlotSeries>& all) {
  std::string script;
  for (size_t i = 0; i < all.size(); ++i) {
    script += fmt::format("$points{} << END\n", i);
    for (const PlotPoint& point : all[i].points) {
      script += fmt::format("{} {}\n", point.x, point.y);
    }
    script += fmt::format("END\n$intervals{} << END\n", i);
    for (const PlotPoint& point : all[i].points) {
      if (has_interval(point)) {
        script += fmt::format("{} {} {} {}\n", point.x, point.y, point.interval->low,
                              point.interval->high);
      }
    }
    script += "END\n";
  }
  return script;
}

bool any_interval(const PlotSeries& series) {
  return std::any_of(series.points.begin(), series.points.end(), has_interval);
}

/// A figure's lines, marks and intervals: `mark` is gnuplot's style for the points
/// ("linespoints"), `bar` the one for the intervals ("yerrorbars").
std::string plot_command(const std::vector<PlotSeries>& all, const char* mark, const char* bar) {
  std::string script = "plot ";
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string style = line_style(all[i].style);
    if (any_interval(all[i])) {
      script += fmt::format("$intervals{} using 1:2:3:4 with {} {} dt 1 notitle, ", i, bar,
                            style.substr(0, style.find(" dt ")));
    }
    script += fmt::format("$points{} using 1:2 with {} {} title {}{}", i, mark, style,
                          quote_for_gnuplot(all[i].name, kLegendCharacters),
                          i + 1 < all.size() ? ", " : "\n");
  }
  return script;
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

/// Least and greatest of what is drawn along y (lines) or x (dots), intervals included.
Interval extent(const std::vector<PlotSeries>& all, bool along_x) {
  Interval extent{.low = INFINITY, .high = -INFINITY};
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      const double value = along_x ? point.x : point.y;
      const Interval own = has_interval(point) ? *point.interval : Interval{value, value};
      extent.low = std::min({extent.low, own.low, value});
      extent.high = std::max({extent.high, own.high, value});
    }
  }
  return extent;
}

/// Ticks only where points are, while they are few.
std::string x_ticks(const std::vector<PlotSeries>& all) {
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
  std::string script =
      fmt::format("set xrange [{}:{}]\n", xs.front() - 0.5 * margin, xs.back() + 0.5 * margin);
  if (xs.size() <= 17) {
    script += fmt::format("set xtics ({})\n", fmt::join(xs, ", "));
  }
  return script;
}

}  // namespace

std::optional<std::string> draw(const LinePlot& plot) {
  const std::vector<PlotSeries> series = drawn(plot.series);
  if (series.empty()) {
    return std::nullopt;
  }
  std::string script = preamble(plot.title, plot.x_label, 330, legend_of(series));
  script += fmt::format("set ylabel {}\n", quote_for_gnuplot(plot.y_label, 60));
  script += x_ticks(series);
  if (!plot.x_names.empty()) {
    script += tick_names('x', plot.x_names);
  }
  const double top = std::max(extent(series, false).high, plot.reference.value_or(0.0)) * 1.08;
  script += fmt::format("set yrange [0:{}]\n", plot.y_max.value_or(top > 0.0 ? top : 1.0));
  script += reference_line('y', plot.reference) + data_blocks(series);
  return draw_script(script + plot_command(series, "linespoints", "yerrorbars"), plot.title);
}

std::optional<std::string> draw(const DotPlot& plot) {
  std::vector<PlotSeries> series = drawn(plot.series);
  if (series.empty() || plot.rows.empty()) {
    return std::nullopt;
  }
  // Within a row the series stand below each other, in the middle 70 % of its height.
  const double step = plot.legend ? 0.7 / static_cast<double>(series.size()) : 0.0;
  for (size_t i = 0; i < series.size(); ++i) {
    for (PlotPoint& point : series[i].points) {
      point.y += step * (static_cast<double>(i) - 0.5 * static_cast<double>(series.size() - 1));
    }
  }
  const auto rows = static_cast<int64_t>(plot.rows.size());
  const auto marks = plot.legend ? static_cast<int64_t>(series.size()) : 1;
  std::string script =
      preamble(plot.title, plot.x_label, 110 + rows * std::max<int64_t>(30, 12 + 13 * marks),
               plot.legend ? legend_of(series) : Legend());
  script += tick_names('y', plot.rows) + fmt::format("set yrange [{}:-0.5]\n", rows - 0.5);
  Interval range = extent(series, true);
  range.low = std::min(range.low, plot.reference.value_or(range.low));
  range.high = std::max(range.high, plot.reference.value_or(range.high));
  const double margin = std::max(0.08 * (range.high - range.low), 0.02);
  script +=
      fmt::format("set xrange [{}:{}]\n", std::max(0.0, range.low - margin), range.high + margin);
  script += reference_line('x', plot.reference) + data_blocks(series);
  return draw_script(script + plot_command(series, "points", "xerrorbars"), plot.title);
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
                rows - 0.5, 1.05 * longest);
  return draw_script(script + data + command + "\n", plot.title);
}

bool can_draw() { return run_gnuplot("print 'ready'").has_value(); }

}  // namespace specdec
