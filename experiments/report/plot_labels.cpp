#include "experiments/report/plot_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "experiments/report/gnuplot.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr double kLabelHeight = 12.0;
constexpr double kCharacterWidth = 6.2;
constexpr double kGap = 12.0;  // from a point to the middle of its label
constexpr double kHalfMark = 5.0;
constexpr size_t kLabelCharacters = 16;

/// A box in pixels, from the axes' corner.
struct Box {
  double left, right, bottom, top;
  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && bottom < other.top && other.bottom < top;
  }
};

Box box_around(double x, double y, double half_width, double half_height) {
  return {x - half_width, x + half_width, y - half_height, y + half_height};
}

/// Turns places of a figure into pixels and back.
class Pixels {
 public:
  explicit Pixels(const PlotArea& area)
      : area_(area),
        x_scale_(area.width / (area.x.high - area.x.low)),
        y_scale_(area.height / (area.y.high - area.y.low)) {}

  double x(double value) const { return (value - area_.x.low) * x_scale_; }
  double y(double value) const { return (value - area_.y.low) * y_scale_; }
  double x_value(double pixels) const { return area_.x.low + pixels / x_scale_; }
  double y_value(double pixels) const { return area_.y.low + pixels / y_scale_; }

 private:
  const PlotArea& area_;
  double x_scale_, y_scale_;
};

/// Small boxes along the line between two points.
void add_line(const Pixels& pixels, const PlotPoint& from, const PlotPoint& to,
              std::vector<Box>& taken) {
  const double x = pixels.x(from.x);
  const double y = pixels.y(from.y);
  const double dx = pixels.x(to.x) - x;
  const double dy = pixels.y(to.y) - y;
  const auto steps = static_cast<int>(std::ceil(std::hypot(dx, dy) / 4.0));
  for (int step = 1; step < steps; ++step) {
    const double share = static_cast<double>(step) / steps;
    taken.push_back(box_around(x + dx * share, y + dy * share, 1.0, 1.0));
  }
}

/// What no label may cover.
std::vector<Box> marks_and_lines(const std::vector<PlotSeries>& all, const Pixels& pixels) {
  std::vector<Box> taken;
  for (const PlotSeries& series : all) {
    for (size_t i = 0; i < series.points.size(); ++i) {
      const PlotPoint& point = series.points[i];
      taken.push_back(box_around(pixels.x(point.x), pixels.y(point.y), kHalfMark, kHalfMark));
      if (point.interval) {
        taken.push_back({pixels.x(point.x) - 3.0, pixels.x(point.x) + 3.0,
                         pixels.y(point.interval->low), pixels.y(point.interval->high)});
      }
      if (i > 0 && series.mark == PlotMark::kLineAndPoints) {
        add_line(pixels, series.points[i - 1], point, taken);
      }
    }
  }
  return taken;
}

/// Above the point and its interval, below, to the right and left, and further off.
std::optional<Box> free_box(const PlotPoint& point, const Pixels& pixels, const PlotArea& area,
                            const std::vector<Box>& taken) {
  const double half =
      0.5 * kCharacterWidth *
      static_cast<double>(std::min(count_characters(point.label), kLabelCharacters));
  const double x = pixels.x(point.x);
  const double y = pixels.y(point.y);
  const double top = point.interval ? pixels.y(point.interval->high) : y;
  const double bottom = point.interval ? pixels.y(point.interval->low) : y;
  const double side = half + kHalfMark + 2.0;
  const std::array<std::pair<double, double>, 8> places = {{{x, top + kGap},
                                                            {x, bottom - kGap},
                                                            {x + side, y},
                                                            {x - side, y},
                                                            {x + side, y + kGap},
                                                            {x - side, y - kGap},
                                                            {x + side, y - kGap},
                                                            {x - side, y + kGap}}};
  for (const auto& [middle, height] : places) {
    const Box box = box_around(middle, height, half, 0.5 * kLabelHeight);
    const bool is_inside = box.left >= 0.0 && box.right <= area.width && box.bottom >= 0.0 &&
                           box.top <= area.height + kGap;
    if (is_inside && std::none_of(taken.begin(), taken.end(),
                                  [&](const Box& other) { return box.overlaps(other); })) {
      return box;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string label_commands(const std::vector<PlotSeries>& all, const PlotArea& area) {
  const Pixels pixels(area);
  std::vector<Box> taken = marks_and_lines(all, pixels);
  std::string script;
  for (const PlotSeries& series : all) {
    for (const PlotPoint& point : series.points) {
      const auto box = point.label.empty() ? std::nullopt : free_box(point, pixels, area, taken);
      if (!box) {
        continue;
      }
      taken.push_back(*box);
      script +=
          fmt::format("set label {} at first {}, first {} center font ',10' tc rgb '{}'\n",
                      quote_for_gnuplot(point.label, kLabelCharacters),
                      pixels.x_value(0.5 * (box->left + box->right)),
                      pixels.y_value(0.5 * (box->bottom + box->top)), style_color(series.style));
    }
  }
  return script;
}

}  // namespace specdec
