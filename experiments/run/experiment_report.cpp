#include "experiments/run/experiment_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "experiments/config/yaml_writer.h"
#include "experiments/metrics/answers.h"
#include "experiments/metrics/loops.h"
#include "experiments/report/spec_bench.h"
#include "experiments/run/arms.h"
#include "experiments/run/record_order.h"

namespace specdec {
namespace {

/// Whether a strategy is lossy at any point of the sweep.
bool is_lossy(const ExperimentPlan& plan, const std::string& name) {
  for (const auto& point : plan.points) {
    for (const auto& strategy : point.config.strategies) {
      if (strategy.name == name && strategy.notes.promise == Promise::kLossy) {
        return true;
      }
    }
  }
  return false;
}

/// Parts of a strategy that were never certified, at any point of the sweep.
std::vector<std::string> uncertified_parts(const ExperimentPlan& plan, const std::string& name) {
  std::set<std::string> parts;
  for (const auto& point : plan.points) {
    for (const auto& strategy : point.config.strategies) {
      if (strategy.name == name) {
        parts.insert(strategy.notes.uncertified.begin(), strategy.notes.uncertified.end());
      }
    }
  }
  return {parts.begin(), parts.end()};
}

/// Strategies that are lossless at a point, but lossy at others.
std::vector<std::string> lossless_at(const ExperimentPlan& plan, const SweepPoint& point) {
  std::vector<std::string> names;
  for (const auto& strategy : point.config.strategies) {
    if (strategy.notes.promise != Promise::kLossy && is_lossy(plan, strategy.name)) {
      names.push_back(strategy.name);
    }
  }
  return names;
}

/// Lossy strategies and settings whose quality a report concludes on.
int64_t count_lossy_arms(const ExperimentPlan& plan, std::span<const GenerationRecord> records) {
  std::set<std::pair<std::string, std::string>> run;
  for (const auto& record : records) {
    run.insert({record.key.sweep_point, record.key.strategy});
  }
  int64_t count = 0;
  for (const auto& point : plan.points) {
    const auto& strategies = point.config.strategies;
    for (size_t i = 1; i < strategies.size(); ++i) {  // the first one is what others are beside
      const bool is_run = run.contains({point.label, strategies[i].name});
      count += is_run && strategies[i].notes.promise == Promise::kLossy ? 1 : 0;
    }
  }
  return count;
}

/// The types of a strategy's parts: {"verifier", "rejection"}.
std::vector<std::pair<std::string, std::string>> part_types(const StrategyConfig& strategy) {
  std::vector<std::pair<std::string, std::string>> parts;
  const auto tree = parse_yaml(strategy.yaml, strategy.name, false);
  for (const auto& entry : tree->entries) {
    const auto* type =
        entry.value->kind == YamlTree::Kind::kMap ? entry.value->find("type") : nullptr;
    if (type != nullptr) {
      parts.emplace_back(entry.key, type->value->text);
    }
  }
  return parts;
}

/// The parts that a strategy has at later points of the sweep only, as a verifier that depends on
/// the temperature: "; at temperature=0.8: verifier rejection".
std::string other_parts(const ExperimentPlan& plan, const StrategyConfig& first) {
  const auto named = part_types(first);
  std::set<std::pair<std::string, std::string>> seen(named.begin(), named.end());
  std::string text;
  for (const auto& point : plan.points) {
    for (const auto& strategy : point.config.strategies) {
      if (strategy.name != first.name) {
        continue;
      }
      for (const auto& part : part_types(strategy)) {
        if (seen.insert(part).second) {
          text += fmt::format("; at {}: {} {}", point.label, part.first, part.second);
        }
      }
    }
  }
  return text;
}

/// The target's frozen cost curve; none when it was not measured, or there are several targets.
std::optional<CostCurve> target_curve(const ExperimentPlan& plan,
                                      const std::filesystem::path& folder) {
  std::optional<CostCurve> curve;
  const auto groups = group_arms(plan);
  for (const Group& group : groups) {
    if (model_key(*group.config) != model_key(*groups.front().config)) {
      return std::nullopt;
    }
    if (!curve) {
      curve = load_cost_curve(folder, group.name.empty() ? "target" : "target at " + group.name);
    }
  }
  return curve;
}

/// One answer file a strategy and point of the sweep.
void write_answer_files(RunFolder& folder, std::span<const GenerationRecord> records) {
  std::map<std::pair<std::string, std::string>, std::vector<const GenerationRecord*>> by_arm;
  for (const auto& record : records) {
    by_arm[{record.key.strategy, record.key.sweep_point}].push_back(&record);
  }
  const auto now = static_cast<double>(std::time(nullptr));
  for (const auto& [arm, own] : by_arm) {
    const auto& [strategy, point] = arm;
    folder.write("answers/" + answers_file_name(strategy, point),
                 write_answers(own, point.empty() ? strategy : strategy + ", " + point, now));
  }
}

}  // namespace

Report describe_plan(const ExperimentPlan& plan) {
  Report report;
  report.name = plan.name;
  report.description = plan.description;
  report.config_yaml = plan.yaml;
  report.sweep_keys = plan.sweep_keys;
  for (const auto& point : plan.points) {
    if (!plan.sweep_keys.empty()) {
      report.sweep_points.push_back(
          {point.label, point.values, point.condition, point.choice, lossless_at(plan, point)});
    }
  }
  const auto& config = plan.points.front().config;
  for (const auto& strategy : config.strategies) {
    auto line = write_yaml_flow(*parse_yaml(strategy.yaml, strategy.name, false));
    line += other_parts(plan, strategy);
    report.strategies.push_back({strategy.name, std::move(line), is_lossy(plan, strategy.name),
                                 true, uncertified_parts(plan, strategy.name)});
  }
  if (const auto keys = model_keys_of_sweep(plan); !keys.empty()) {
    report.notes.push_back(
        fmt::format("Points of the sweep that differ in {} ran one after the other, since each "
                    "needs a model of its own: drifts of the machine's speed between them count as "
                    "differences.",
                    fmt::join(keys, " or ")));
  }
  if (!config.machine_profile.empty()) {
    report.notes.push_back(config.machine_profile);
  }
  const auto& prompts = config.prompts;
  const auto several = std::count_if(prompts.prompts.begin(), prompts.prompts.end(),
                                     [](const Prompt& p) { return p.turns.size() > 1; });
  if (!prompts.multi_turn && several > 0) {
    report.notes.push_back(fmt::format(
        "Only the first turn was run of {} prompt{} with several: prompts.multi_turn is false.",
        several, several == 1 ? "" : "s"));
  }
  return report;
}

std::vector<std::string> left_out_notes(const LeftOutPrompts& left_out, size_t groups) {
  std::map<std::set<std::string>, std::vector<std::string>> places;
  for (const auto& [group, prompts] : left_out) {
    places[prompts].push_back(group);
  }
  std::vector<std::string> notes;
  for (const auto& [prompts, names] : places) {
    const bool everywhere = names.size() == groups;
    notes.push_back(fmt::format("{} prompt{} left out as too long{}: {}.", prompts.size(),
                                prompts.size() == 1 ? " was" : "s were",
                                everywhere ? "" : fmt::format(" at {}", fmt::join(names, "; ")),
                                fmt::join(prompts, ", ")));
  }
  return notes;
}

std::vector<GenerationRecord> measured_records(const ExperimentPlan& plan,
                                               std::span<const GenerationRecord> records) {
  return plan.points.front().config.cut_loops ? before_loops(records)
                                              : std::vector(records.begin(), records.end());
}

ConditionOf plan_conditions(const ExperimentPlan& plan) {
  std::map<std::string, std::string> conditions;
  for (const auto& point : plan.points) {
    conditions[point.label] = point.condition;
  }
  return [conditions = std::move(conditions)](const std::string& label) {
    const auto found = conditions.find(label);
    return found == conditions.end() ? label : found->second;
  };
}

Summary summarize_run(const ExperimentPlan& plan, std::span<const GenerationRecord> records) {
  const ExperimentConfig& config = plan.points.front().config;
  const SummaryOptions options{.condition_of = plan_conditions(plan),
                               .quality_margin = config.quality.margin,
                               .lossy_arms = count_lossy_arms(plan, records)};
  return config.cut_loops ? summarize_before_loops(records, options) : summarize(records, options);
}

ReportDetails run_details(const ExperimentPlan& plan, const std::filesystem::path& folder,
                          std::span<const GenerationRecord> as_made) {
  const auto records = measured_records(plan, in_plan_order(plan, as_made));
  const auto measured = measured_records(plan, as_made);
  const auto traces = load_traces(folder);
  const auto& weights = plan.points.front().config.weights;
  return collect_details({.records = records,
                          .as_made = measured,
                          .traces = traces,
                          .cost_curve = target_curve(plan, folder),
                          .tokenizer = plan.models->read(weights).tokenizer.get(),
                          .condition_of = plan_conditions(plan)});
}

void write_report_files(RunFolder& folder, const Report& report,
                        std::span<const GenerationRecord> records) {
  const auto write = [&](const char* name, void (*writer)(std::ostream&, const Report&)) {
    std::ostringstream text;
    writer(text, report);
    folder.write(name, text.str());
  };
  write("summary.json", write_json);
  write("summary.csv", write_csv);
  for (const ReportFile& file : report_files(report)) {
    folder.write(file.name, file.text);
  }
  write_answer_files(folder, records);
  std::ostringstream tables;
  write_spec_bench(tables, report, records);
  folder.write("spec_bench.md", tables.str());
}

bool has_report_files(const std::filesystem::path& folder) {
  const auto has = [&](const char* name) { return std::filesystem::exists(folder / name); };
  return has("summary.json") && has("summary.csv") && has("report.html") && has("answers") &&
         has("spec_bench.md");
}

}  // namespace specdec
