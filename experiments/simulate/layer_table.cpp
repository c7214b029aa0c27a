#include "experiments/simulate/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "experiments/report/report_text.h"

namespace specdec {
namespace {

/// The widths of the table's columns: those of the curve at its first context.
std::vector<int64_t> widths_of(const CostCurve& curve) {
  std::vector<int64_t> widths;
  for (const CostPoint& point : curve.points) {
    if (point.context == curve.points.front().context) {
      widths.push_back(point.new_tokens);
    }
  }
  return widths;
}

void add_times(const CostCurve& curve, double factor, Cells& row) {
  const int64_t context = curve.points.front().context;
  for (const int64_t width : widths_of(curve)) {
    row.push_back(fmt::format("{:.3f}", 1e3 * factor * curve.seconds(width, context)));
  }
}

nlohmann::ordered_json points_json(const CostCurve& curve) {
  auto points = nlohmann::ordered_json::array();
  for (const CostPoint& point : curve.points) {
    points.push_back({{"new_tokens", point.new_tokens},
                      {"context", point.context},
                      {"seconds", {point.low, point.seconds, point.high}}});
  }
  return points;
}

}  // namespace

void print_layers(std::ostream& out, const LayerProfile& profile) {
  out << fmt::format(
      "\nput together from these parts, measured by themselves with random weights: milliseconds "
      "of "
      "all layers of a kind, by new tokens, after {} tokens\n",
      profile.whole.points.front().context);
  std::vector<Cells> rows = {{"layers like", "count", "MB each"}};
  for (const int64_t width : widths_of(profile.whole)) {
    rows[0].push_back(fmt::format("{}", width));
  }
  for (const LayerKindCost& cost : profile.kinds) {
    rows.push_back({fmt::format("{}", cost.kind.first), fmt::format("{}", cost.kind.count),
                    fmt::format("{:.1f}", 1e-6 * static_cast<double>(cost.bytes))});
    add_times(cost.curve, static_cast<double>(cost.kind.count), rows.back());
  }
  rows.push_back({"(embedding, head)", "-", "-"});
  add_times(profile.rest, 1.0, rows.back());
  write_aligned(out, rows, 1);
}

nlohmann::ordered_json layers_json(const LayerProfile& profile) {
  auto kinds = nlohmann::ordered_json::array();
  for (const LayerKindCost& cost : profile.kinds) {
    kinds.push_back({{"first", cost.kind.first},
                     {"count", cost.kind.count},
                     {"bytes", cost.bytes},
                     {"points", points_json(cost.curve)}});
  }
  return {{"kinds", std::move(kinds)}, {"rest", points_json(profile.rest)}};
}

void print_predictions(std::ostream& out, const CostCurve& curve,
                       std::span<const double> acceptance, double draft_cost) {
  const int64_t context = curve.points.front().context;
  out << fmt::format(
      "\nPREDICTED, not measured: speed-up over plain decoding after {} tokens where drafted "
      "tokens "
      "are accepted as --acceptance says and each costs {} forwards\n",
      context, draft_cost);
  std::vector<Cells> rows = {{"drafted", "tokens per step", "speed-up"}};
  for (const PredictedSpeed& speed : predict_speed(curve, context, acceptance, draft_cost)) {
    rows.push_back({fmt::format("{}", speed.length), fmt::format("{:.2f}", speed.tokens),
                    fmt::format("{:.2f}", speed.speed_up)});
  }
  write_aligned(out, rows, 0);
}

}  // namespace specdec
