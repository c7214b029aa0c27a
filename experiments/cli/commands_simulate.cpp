#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/run_costs.h"
#include "experiments/report/report_text.h"
#include "experiments/run/recorded_notes.h"
#include "experiments/run/run_folder.h"
#include "experiments/simulate/profile.h"
#include "experiments/simulate/simulate.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateArguments {
  std::string run, profile, drafter;
  std::optional<std::string> lengths;
  std::vector<std::string> strategies, trees;
  std::optional<double> draft_cost;
  bool no_speed = false;
  JsonOption json;
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
  if (!std::filesystem::exists(std::filesystem::path(arguments.run) / "generations.jsonl")) {
    throw Error(
        fmt::format("'{}': no run folder (it has no generations.jsonl); make one with traces: "
                    "specdec run CONFIG "
                    "--set trace.depth=8 --out FOLDER",
                    arguments.run));
  }
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
  std::vector<std::string> traced;
  for (const TracedArm& arm : arms) {
    if (std::find(traced.begin(), traced.end(), arm.strategy) == traced.end()) {
      traced.push_back(arm.strategy);
    }
  }
  for (const auto& name : arguments.strategies) {
    if (std::find(traced.begin(), traced.end(), name) == traced.end()) {
      throw ConfigError(fmt::format("--strategy: the run traced no '{}'{}", name,
                                    known_names_text(name, traced)));
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
  if (arguments.lengths) {
    try {
      for (const Token length : parse_token_list(*arguments.lengths)) {
        shapes.push_back(chain_shape(length));
      }
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("--lengths: {}", error.what()));
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

RunCosts read_costs(const SimulateArguments& arguments, const TracedArm& arm) {
  if (arguments.no_speed) {
    return {};
  }
  RunCosts found = arguments.profile.empty()
                       ? costs_of_run(arguments.run, arm.strategy, arm.sweep_point)
                       : RunCosts{costs_of(read_profile(arguments.profile), arguments.drafter)};
  if (found.costs && arguments.draft_cost) {
    set_draft_cost(*found.costs, *arguments.draft_cost);
  }
  if (found.costs && found.costs->draft.empty()) {
    throw ConfigError(fmt::format(
        "--profile {}: holds no drafter, as one by layers does not: say what a drafted token costs "
        "with --draft-cost, in forwards of one token, or measure a drafter with specdec profile "
        "MODEL --draft DRAFTER --json FILE",
        arguments.profile));
  }
  return found;
}

struct ReplayRow {
  std::string strategy;
  ReplayShape shape;
  ReplayCounts counts;
  bool timed = false;
};

/// What the traces do not tell, and which ones would.
struct NotSimulated {
  std::string strategy, shape, reason;
};

struct Replays {
  std::vector<ReplayRow> rows;
  std::vector<PlainSpeed> plain;  ///< of arms with speeds
  std::vector<NotSimulated> rest;
};

std::optional<double> speedup(const ReplayRow& row) {
  return row.timed ? std::optional(row.counts.plain_seconds / row.counts.seconds()) : std::nullopt;
}

std::optional<double> acceptance(const ReplayCounts& counts) {
  return counts.drafted > 0.0 ? std::optional(counts.accepted / counts.drafted) : std::nullopt;
}

/// Ranks that the run asked its drafters for: of its config, or as many as any trace has.
int64_t run_width(const SimulateArguments& arguments, const TracedArm& arm) {
  int64_t width = recorded_trace_width(arguments.run);
  for (const TraceRecord& record : arm.records) {
    width = std::max(width, record.trace.width);
  }
  return width;
}

/// Why one of the traces cannot tell; "" when all can.
std::string refusal_of(const TracedArm& arm, const ReplayShape& shape, int64_t width) {
  for (const TraceRecord& record : arm.records) {
    if (auto refusal = replay_refusal(record, shape, width); !refusal.empty()) {
      return refusal;
    }
  }
  return "";
}

void replay_arm(const SimulateArguments& arguments, const TracedArm& arm, Replays& replays) {
  const auto [costs, no_costs, measured, load] = read_costs(arguments, arm);
  if (!no_costs.empty()) {
    replays.rest.push_back({arm.name(), "speeds", no_costs});
  }
  const int64_t width = run_width(arguments, arm);
  const size_t begin = replays.rows.size();
  for (const ReplayShape& shape : read_shapes(arguments, arm)) {
    if (auto refusal = refusal_of(arm, shape, width); !refusal.empty()) {
      replays.rest.push_back({arm.name(), shape.name, std::move(refusal)});
      continue;
    }
    ReplayRow row{.strategy = arm.name(), .shape = shape, .counts = {}, .timed = costs.has_value()};
    for (const TraceRecord& record : arm.records) {
      replay(record, shape, costs ? &*costs : nullptr, row.counts);
    }
    replays.rows.push_back(std::move(row));
  }
  if (costs && replays.rows.size() > begin) {
    const ReplayCounts& counts = replays.rows.back().counts;
    replays.plain.push_back({arm.name(), counts.committed / counts.plain_seconds, measured, load});
  }
}

std::string text_of(const NotSimulated& one) {
  return fmt::format("{}: {} cannot be simulated from this trace: {}", one.strategy, one.shape,
                     one.reason);
}

/// All shapes of all arms. Throws ConfigError when the traces tell nothing of any.
Replays replay_all(const SimulateArguments& arguments, const std::vector<TracedArm>& arms) {
  Replays replays;
  for (const TracedArm& arm : arms) {
    replay_arm(arguments, arm, replays);
  }
  if (replays.rows.empty()) {
    std::vector<std::string> reasons;
    for (const NotSimulated& one : replays.rest) {
      reasons.push_back(text_of(one));
    }
    throw ConfigError(fmt::format("{}", fmt::join(reasons, "\n")));
  }
  return replays;
}

void print_replays(std::ostream& out, const Replays& replays, const std::vector<TracedArm>& arms) {
  std::vector<Cells> table = {
      {"strategy", "shape", "tokens/step", "drafted/step", "acceptance", "speed-up", "tokens/s"}};
  for (const ReplayRow& row : replays.rows) {
    const ReplayCounts& counts = row.counts;
    table.push_back({row.strategy, one_line(row.shape.name, 40),
                     number_text(counts.tokens_per_step(), 3),
                     number_text(counts.drafted / counts.steps, 2),
                     percent_text(acceptance(counts)), number_text(speedup(row), 3),
                     row.timed ? number_text(counts.committed / counts.seconds(), 1) : "-"});
  }
  write_aligned(out, table, 2);
  for (const PlainSpeed& speed : replays.plain) {
    out << plain_speed_text(speed) << "\n";
  }
  for (const TracedArm& arm : arms) {
    out << "Exact acceptance by depth, over every position (" << arm.name() << "):";
    for (const double mean : mean_overlaps(arm.records)) {
      out << " " << number_text(mean, 3);
    }
    out << "\n";
  }
  for (const NotSimulated& one : replays.rest) {
    out << text_of(one) << "\n";
  }
}

Json replays_json(const Replays& replays, const std::vector<TracedArm>& arms) {
  Json shapes = Json::array();
  for (const ReplayRow& row : replays.rows) {
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
  Json rest = Json::array();
  for (const NotSimulated& one : replays.rest) {
    rest.push_back({{"strategy", one.strategy}, {"shape", one.shape}, {"reason", one.reason}});
  }
  Json plain = Json::array();
  for (const PlainSpeed& speed : replays.plain) {
    plain.push_back(
        {{"strategy", speed.arm},
         {"tokens_per_second", speed.tokens_per_second},
         {"measured_tokens_per_second", speed.measured ? Json(*speed.measured) : Json()},
         {"load", speed.load}});
  }
  return {{"shapes", std::move(shapes)},
          {"plain_decoding", std::move(plain)},
          {"exact_acceptance", std::move(overlaps)},
          {"not_simulated", std::move(rest)}};
}

/// A run's summary is the last that it writes.
bool is_finished(const SimulateArguments& arguments) {
  return std::filesystem::exists(std::filesystem::path(arguments.run) / "summary.json");
}

std::string unfinished_text(const SimulateArguments& arguments,
                            const std::vector<TracedArm>& arms) {
  std::vector<std::string> counts;
  for (const TracedArm& arm : arms) {
    counts.push_back(fmt::format("{} of {}", arm.records.size(), arm.name()));
  }
  return fmt::format(
      "{}: this run is not finished, so what follows is of the traces that are there: {}. The "
      "command that began it goes on with it.",
      arguments.run, fmt::join(counts, "; "));
}

int simulate(const CommandContext& context, const SimulateArguments& arguments) {
  if (arguments.draft_cost && std::isnan(*arguments.draft_cost)) {
    throw ConfigError("--draft-cost: expected a number of at least 0, found nan");
  }
  if (!arguments.drafter.empty() && arguments.profile.empty()) {
    throw ConfigError("--drafter: names a drafter of a profile; give the profile with --profile");
  }
  JsonOutput json(arguments.json, context.out);
  const auto arms = traced_arms(arguments);
  const auto replays = replay_all(arguments, arms);
  auto result = replays_json(replays, arms);
  result["finished"] = is_finished(arguments);
  if (!is_finished(arguments)) {
    context.err << "warning: " << unfinished_text(arguments, arms) << "\n";
  }
  json.write(json_text(result, 2) + "\n");
  json.commit();
  if (!json.replaces_text()) {
    print_replays(context.out, replays, arms);
  }
  return 0;
}

}  // namespace

void add_simulate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "simulate",
      "predict other draft lengths, trees and costs from a run's traces, without the model");
  const auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("RUN", arguments->run, "folder of a run with `trace:`")->required();
  command->add_option("--strategy", arguments->strategies, "only these strategies of the run")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--lengths", arguments->lengths,
                      "chain lengths, such as 1,2,4 (default: all recorded)");
  command
      ->add_option("--tree", arguments->trees,
                   "a tree as the path of ranks to each node, [[0],[1],[0,0]]; may be repeated")
      ->expected(1)
      ->allow_extra_args(false)  // else "[x]" would be taken for a list
      ->take_all();
  command->add_option("--profile", arguments->profile,
                      "costs from 'specdec profile --json' (default: the run's own)");
  command->add_option("--drafter", arguments->drafter, "the profile's drafter to use");
  command
      ->add_option("--draft-cost", arguments->draft_cost,
                   "cost of a drafted token, in plain forwards")
      ->check(CLI::Range(0.0, 1e6));
  command->add_flag("--no-speed", arguments->no_speed, "tokens per step only, no speed-up");
  add_json_option(*command, arguments->json, "one JSON object");
  command->footer(
      "Examples:\n"
      "  specdec run configs/pair.yaml --set 'trace={depth: 8, width: 2}' --out runs/traced\n"
      "  specdec simulate runs/traced --lengths 1,2,4,8\n"
      "  specdec simulate runs/traced --strategy draft_model --profile machine.json");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return simulate(context, *arguments); };
  });
}

}  // namespace specdec
