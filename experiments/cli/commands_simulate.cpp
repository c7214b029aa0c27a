#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "experiments/cli/commands.h"
#include "experiments/report/report_text.h"
#include "experiments/run/run_folder.h"
#include "experiments/simulate/profile.h"
#include "experiments/simulate/simulate.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateArguments {
  std::string run, lengths, profile, drafter;
  std::vector<std::string> strategies, trees;
  double draft_cost = -1.0;
  bool no_speed = false;
  bool json = false;
};

/// The traces of one strategy at one point of the sweep.
struct TracedArm {
  std::string sweep_point, strategy;
  std::vector<TraceRecord> records;
  std::string name() const {
    return sweep_point.empty() ? strategy : strategy + ", " + sweep_point;
  }
};

std::vector<TracedArm> traced_arms(const SimulateArguments& arguments) {
  std::vector<TracedArm> arms;
  for (TraceRecord& record : load_traces(arguments.run)) {
    auto found = std::find_if(arms.begin(), arms.end(), [&](const TracedArm& arm) {
      return arm.strategy == record.key.strategy && arm.sweep_point == record.key.sweep_point;
    });
    if (found == arms.end()) {
      found = arms.insert(arms.end(), {record.key.sweep_point, record.key.strategy, {}});
    }
    found->records.push_back(std::move(record));
  }
  if (arms.empty()) {
    throw Error(fmt::format("{}: holds no traces; run the experiment with --set trace.depth=8",
                            arguments.run));
  }
  for (const auto& name : arguments.strategies) {
    if (std::none_of(arms.begin(), arms.end(),
                     [&](const TracedArm& arm) { return arm.strategy == name; })) {
      throw ConfigError(fmt::format("--strategy: the run traced no '{}'", name));
    }
  }
  if (!arguments.strategies.empty()) {
    std::erase_if(arms, [&](const TracedArm& arm) {
      return std::count(arguments.strategies.begin(), arguments.strategies.end(), arm.strategy) ==
             0;
    });
  }
  return arms;
}

std::vector<ReplayShape> read_shapes(const SimulateArguments& arguments, const TracedArm& arm) {
  std::vector<ReplayShape> shapes;
  if (!arguments.lengths.empty()) {
    for (const Token length : parse_token_list(arguments.lengths)) {
      shapes.push_back(chain_shape(length));
    }
  }
  for (const auto& tree : arguments.trees) {
    shapes.push_back(parse_tree_shape(tree));
  }
  if (shapes.empty()) {
    for (int64_t length = 1; length <= arm.records.front().trace.depth; ++length) {
      shapes.push_back(chain_shape(length));
    }
  }
  return shapes;
}

std::optional<StepCosts> read_costs(const SimulateArguments& arguments, const TracedArm& arm) {
  if (arguments.no_speed) {
    return std::nullopt;
  }
  std::optional<StepCosts> costs;
  if (!arguments.profile.empty()) {
    costs = costs_of(read_profile(arguments.profile), arguments.drafter);
  } else {
    // The curve is named by its point of a sweep, when there are several targets.
    auto curve = load_cost_curve(arguments.run, "target");
    if (!curve) {
      curve = load_cost_curve(arguments.run, "target at " + arm.sweep_point);
    }
    if (!curve) {
      throw Error(fmt::format("{}: holds no cost curve of the target; give --profile or --no-speed",
                              arguments.run));
    }
    costs = costs_of(*curve, load_records(arguments.run), arm.strategy);
  }
  if (arguments.draft_cost >= 0.0) {
    set_draft_cost(*costs, arguments.draft_cost);
  }
  return costs;
}

struct ReplayRow {
  std::string strategy;
  ReplayShape shape;
  ReplayCounts counts;
  bool timed = false;
};

std::optional<double> speedup(const ReplayRow& row) {
  return row.timed ? std::optional(row.counts.plain_seconds / row.counts.seconds()) : std::nullopt;
}

std::optional<double> acceptance(const ReplayCounts& counts) {
  return counts.drafted > 0.0 ? std::optional(counts.accepted / counts.drafted) : std::nullopt;
}

std::vector<ReplayRow> replay_arm(const SimulateArguments& arguments, const TracedArm& arm) {
  const auto costs = read_costs(arguments, arm);
  std::vector<ReplayRow> rows;
  for (const ReplayShape& shape : read_shapes(arguments, arm)) {
    ReplayRow row{.strategy = arm.name(), .shape = shape, .counts = {}, .timed = costs.has_value()};
    for (const TraceRecord& record : arm.records) {
      const auto refusal = replay_refusal(record, shape);
      if (!refusal.empty()) {
        throw ConfigError(fmt::format("{}: {} cannot be simulated from this trace: {}", arm.name(),
                                      shape.name, refusal));
      }
      replay(record, shape, costs ? &*costs : nullptr, row.counts);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_rows(std::ostream& out, const std::vector<ReplayRow>& rows,
                const std::vector<TracedArm>& arms) {
  std::vector<Cells> table = {
      {"strategy", "shape", "tokens/step", "drafted/step", "acceptance", "speed-up", "tokens/s"}};
  for (const ReplayRow& row : rows) {
    const ReplayCounts& counts = row.counts;
    table.push_back({row.strategy, one_line(row.shape.name, 40),
                     number_text(counts.tokens_per_step(), 3),
                     number_text(counts.drafted / counts.steps, 2),
                     percent_text(acceptance(counts)), number_text(speedup(row), 3),
                     row.timed ? number_text(counts.committed / counts.seconds(), 1) : "-"});
  }
  write_aligned(out, table, 2);
  for (const TracedArm& arm : arms) {
    out << "Exact acceptance by depth, over every position (" << arm.name() << "):";
    for (const double mean : mean_overlaps(arm.records)) {
      out << " " << number_text(mean, 3);
    }
    out << "\n";
  }
}

Json rows_json(const std::vector<ReplayRow>& rows, const std::vector<TracedArm>& arms) {
  Json shapes = Json::array();
  for (const ReplayRow& row : rows) {
    const ReplayCounts& counts = row.counts;
    const auto number = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
    shapes.push_back({{"strategy", row.strategy},
                      {"shape", row.shape.name},
                      {"depth", row.shape.depth},
                      {"tree", row.shape.tree},
                      {"tokens_per_step", counts.tokens_per_step()},
                      {"acceptance_rate", number(acceptance(counts))},
                      {"speedup", number(speedup(row))},
                      {"steps", counts.steps},
                      {"drafting_steps", counts.drafting_steps},
                      {"committed", counts.committed},
                      {"drafted", counts.drafted},
                      {"accepted", counts.accepted},
                      {"accepted_at", counts.accepted_at},
                      {"draft_seconds", counts.draft_seconds},
                      {"verify_seconds", counts.verify_seconds},
                      {"other_seconds", counts.other_seconds},
                      {"plain_seconds", counts.plain_seconds}});
  }
  Json overlaps = Json::object();
  for (const TracedArm& arm : arms) {
    overlaps[arm.name()] = mean_overlaps(arm.records);
  }
  return {{"shapes", std::move(shapes)}, {"exact_acceptance", std::move(overlaps)}};
}

int simulate(const CommandContext& context, const SimulateArguments& arguments) {
  const auto arms = traced_arms(arguments);
  std::vector<ReplayRow> rows;
  for (const TracedArm& arm : arms) {
    for (ReplayRow& row : replay_arm(arguments, arm)) {
      rows.push_back(std::move(row));
    }
  }
  if (arguments.json) {
    context.out << rows_json(rows, arms).dump(2, ' ', false, Json::error_handler_t::replace)
                << "\n";
  } else {
    print_rows(context.out, rows, arms);
  }
  return 0;
}

}  // namespace

void add_simulate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "simulate", "replay a run's traces with other draft lengths, trees and costs; no model");
  const auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("RUN", arguments->run, "folder of a run with `trace:`")->required();
  command->add_option("--strategy", arguments->strategies, "only these of the run's strategies")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--lengths", arguments->lengths,
                      "chains, such as 1,2,4 (default: all that were recorded)");
  command
      ->add_option("--tree", arguments->trees,
                   "a tree by the ranks on the path to each node, [[0],[1],[0,0]]; may be repeated")
      ->expected(1)
      ->allow_extra_args(false)  // else "[x]" would be taken for a list
      ->take_all();
  command->add_option("--profile", arguments->profile,
                      "costs of a machine, from specdec profile --json (default: the run's own)");
  command->add_option("--drafter", arguments->drafter, "which drafter of the profile");
  command
      ->add_option("--draft-cost", arguments->draft_cost,
                   "c: a drafted token costs so many plain forwards")
      ->check(CLI::Range(0.0, 1e6));
  command->add_flag("--no-speed", arguments->no_speed, "counts only");
  command->add_flag("--json", arguments->json, "one JSON object");
  command->footer(
      "Examples:\n"
      "  specdec run configs/quickstart.yaml --set trace.depth=8 --out runs/traced\n"
      "  specdec simulate runs/traced --lengths 1,2,4,8\n"
      "  specdec simulate runs/traced --strategy draft_model --profile machine.json");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return simulate(context, *arguments); };
  });
}

}  // namespace specdec
