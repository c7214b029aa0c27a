#include "experiments/report/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/report/svg_plot.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

constexpr int64_t kDrawingWidth = 560;
constexpr int64_t kTop = 44;

using Color = std::array<double, 3>;
constexpr Color kPale = {244, 244, 242};
constexpr Color kBlue = {0, 114, 178};
constexpr Color kOrange = {213, 94, 0};

std::string text_element(double x, double y, const std::string& text, const std::string& more) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more,
                     escape_html(text));
}

std::string begin_svg(int64_t height, const std::string& title) {
  return fmt::format(
             "<svg role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
             "viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\" "
             "fill=\"currentColor\">\n<title>{}</title>\n",
             kDrawingWidth, height, kDrawingWidth, height, escape_html(title)) +
         text_element(0.5 * kDrawingWidth, 18, one_line(title, 70),
                      "text-anchor=\"middle\" font-size=\"15\"");
}

/// Color of a share, from pale at 0 to `full` at 1.
Color mix(const Color& full, double share) {
  Color color{};
  for (size_t i = 0; i < color.size(); ++i) {
    color[i] = kPale[i] + (full[i] - kPale[i]) * std::clamp(share, 0.0, 1.0);
  }
  return color;
}

std::string css(const Color& color) {
  return fmt::format("rgb({:.0f},{:.0f},{:.0f})", color[0], color[1], color[2]);
}

bool is_dark(const Color& color) {
  return 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] < 140.0;
}

/// Distance of the value that lies farthest from the middle.
double reach_of(const HeatMap& map) {
  double reach = 0.0;
  for (const auto& row : map.values) {
    for (const auto& value : row) {
      reach = std::max(reach, value ? std::abs(*value - map.middle) : 0.0);
    }
  }
  return reach;
}

/// One field with its value.
std::string field(const HeatMap& map, double reach, const std::optional<double>& value,
                  const std::array<double, 4>& box) {
  const auto [x, y, width, height] = box;
  if (!value) {
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
        "stroke=\"#9A9A9A\" stroke-dasharray=\"3 3\"/>\n",
        x + 1, y + 1, width - 2, height - 2);
  }
  const double share = reach > 0.0 ? std::abs(*value - map.middle) / reach : 0.0;
  const Color color = mix(*value < map.middle ? kOrange : kBlue, share);
  return fmt::format(
             "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" "
             "fill=\"{}\"/>\n",
             x + 1, y + 1, width - 2, height - 2, css(color)) +
         text_element(x + 0.5 * width, y + 0.5 * height + 4.5, number_text(value, map.decimals),
                      fmt::format("text-anchor=\"middle\" fill=\"{}\"",
                                  is_dark(color) ? "#ffffff" : "#1c1e21"));
}

/// Where the nodes of a tree stand: a first child beside its parent, the others in rows below.
std::vector<int64_t> tree_rows(const HitTree& tree, int64_t& row_count) {
  std::vector<int64_t> rows(tree.nodes.size(), 0);
  row_count = 0;
  const auto place = [&](auto&& self, int64_t parent) -> void {
    std::vector<size_t> children;
    for (size_t i = 0; i < tree.nodes.size(); ++i) {
      if (tree.nodes[i].parent == parent) {
        children.push_back(i);
      }
    }
    std::sort(children.begin(), children.end(),
              [&](size_t a, size_t b) { return tree.nodes[a].hits > tree.nodes[b].hits; });
    for (const size_t child : children) {
      rows[child] = row_count;
      const int64_t before = row_count;
      self(self, static_cast<int64_t>(child));
      row_count = std::max(row_count, before + 1);
    }
  };
  place(place, -1);
  return rows;
}

std::string edge(double x0, double y0, double x1, double y1, double width,
                 const std::string& color) {
  const double middle = 0.5 * (x0 + x1);
  return fmt::format(
      "<path d=\"M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" "
      "stroke=\"{}\" stroke-opacity=\"0.55\" stroke-width=\"{:.1f}\"/>\n",
      x0, y0, middle, y0, middle, y1, x1, y1, color, width);
}

}  // namespace

std::optional<std::string> draw(const HeatMap& map) {
  if (map.x_names.empty() || map.y_names.empty()) {
    return std::nullopt;
  }
  size_t longest = 0;
  for (const std::string& name : map.y_names) {
    longest = std::max(longest, std::min<size_t>(count_characters(name), 20));
  }
  const double left = 34.0 + 7.0 * static_cast<double>(longest);
  const double width = (kDrawingWidth - left - 10.0) / static_cast<double>(map.x_names.size());
  constexpr double kHeight = 34.0;
  const double bottom = kTop + kHeight * static_cast<double>(map.y_names.size());
  std::string svg = begin_svg(static_cast<int64_t>(bottom) + 48, map.title);
  const double reach = reach_of(map);
  for (size_t y = 0; y < map.y_names.size(); ++y) {
    const double top = kTop + kHeight * static_cast<double>(y);
    svg += text_element(left - 8, top + 0.5 * kHeight + 4, one_line(map.y_names[y], 20),
                        "text-anchor=\"end\"");
    for (size_t x = 0; x < map.x_names.size(); ++x) {
      svg += field(map, reach, map.values.at(y).at(x),
                   {left + width * static_cast<double>(x), top, width, kHeight});
    }
  }
  for (size_t x = 0; x < map.x_names.size(); ++x) {
    svg += text_element(left + width * (static_cast<double>(x) + 0.5), bottom + 16,
                        one_line(map.x_names[x], 14), "text-anchor=\"middle\"");
  }
  svg += text_element(left + 0.5 * (kDrawingWidth - left), bottom + 38, one_line(map.x_label, 60),
                      "text-anchor=\"middle\"");
  svg += text_element(
      0, 0, one_line(map.y_label, 40),
      fmt::format("transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\"",
                  0.5 * (kTop + bottom)));
  return svg + "</svg>";
}

std::optional<std::string> draw(const TreeDrawing& drawing) {
  const HitTree& tree = drawing.tree;
  if (tree.nodes.empty() || tree.positions <= 0) {
    return std::nullopt;
  }
  int64_t row_count = 0;
  const std::vector<int64_t> rows = tree_rows(tree, row_count);
  int64_t depth = 1;
  for (const HitNode& node : tree.nodes) {
    depth = std::max(depth, node.depth);
  }
  const double step = std::min(120.0, (kDrawingWidth - 70.0) / static_cast<double>(depth));
  const auto x_of = [&](int64_t at) { return 18.0 + step * static_cast<double>(at); };
  const auto y_of = [&](int64_t row) { return kTop + 30.0 + 26.0 * static_cast<double>(row); };
  std::string edges;
  std::string nodes =
      fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\"/>\n", x_of(0), y_of(0));
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const HitNode& node = tree.nodes[i];
    const double rate = static_cast<double>(node.hits) / static_cast<double>(tree.positions);
    const double x = x_of(node.depth);
    const double y = y_of(rows[i]);
    const double y_before =
        node.parent < 0 ? y_of(0) : y_of(rows[static_cast<size_t>(node.parent)]);
    const std::string color = style_color(drawing.style);
    edges += edge(x_of(node.depth - 1), y_before, x, y, 1.0 + 7.0 * rate, color);
    nodes += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\"><title>choice {} at position "
        "{}: {} of {} positions</title></circle>\n",
        x, y, 3.0 + 7.0 * std::sqrt(rate), color, node.rank + 1, node.depth, node.hits,
        tree.positions);
    const double room = 3.0 + 7.0 * std::sqrt(rate) + 4.0;
    nodes +=
        text_element(x + room, y - 4.0, fmt::format("{:.{}f} %", 100.0 * rate, rate < 0.1 ? 1 : 0),
                     "font-size=\"11\"");
  }
  std::string svg = begin_svg(static_cast<int64_t>(y_of(row_count)) + 6, drawing.title);
  for (int64_t at = 1; at <= depth; ++at) {
    svg += text_element(x_of(at), kTop, fmt::format("{}", at),
                        "text-anchor=\"middle\" fill-opacity=\"0.7\"");
  }
  return svg + edges + nodes + "</svg>";
}

}  // namespace specdec
