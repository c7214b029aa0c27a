#include "experiments/run/finished_run.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "experiments/config/config_file.h"
#include "experiments/report/report_text.h"
#include "experiments/run/answer_scoring.h"
#include "experiments/run/arms.h"
#include "experiments/run/experiment_report.h"
#include "experiments/run/record_order.h"
#include "experiments/run/run_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// Goes through a run as ExperimentRun does, and looks for what its folder lacks.
class RecordedRun {
 public:
  RecordedRun(const ExperimentPlan& plan, const fs::path& folder)
      : plan_(plan),
        groups_(group_arms(plan)),
        records_(load_records(folder)),
        traces_(load_traces(folder)) {
    for (const auto& record : records_) {
      generations_[record.key] = &record;
    }
    for (const auto& trace : traces_) {
      traced_.insert(trace.key);
      traced_arms_.insert({trace.key.sweep_point, trace.key.strategy});
    }
  }

  bool is_whole() const {
    return std::all_of(groups_.begin(), groups_.end(), [this](const Group& group) {
      const auto& prompts = group.config->prompts.prompts;
      return !lacks_all_traces(group) &&
             std::all_of(prompts.begin(), prompts.end(),
                         [&](const Prompt& prompt) { return has_prompt(group, prompt); });
    });
  }
  const std::vector<GenerationRecord>& records() const { return records_; }

 private:
  /// Which strategies a run traces is known once they are built; those with a verifier, as a rule.
  bool lacks_all_traces(const Group& group) const {
    return group.config->trace && traces_.empty() &&
           std::any_of(group.arms.begin(), group.arms.end(),
                       [](const Arm& arm) { return !arm.config->verifier.empty(); });
  }

  bool has_prompt(const Group& group, const Prompt& prompt) const {
    const auto& config = *group.config;
    const auto& target = plan_.models->read(config.weights);
    const size_t turns = count_turns(config, prompt);
    for (int64_t repeat = 0; repeat < config.repeats; ++repeat) {
      std::vector<ChatTurn> history;
      for (size_t turn = 0; turn < turns; ++turn) {
        Item item{&prompt, turn, repeat};
        if (!encode_item(config, target, item, history)) {
          break;  // too long: left out
        }
        if (!has_item(group, item)) {
          return false;
        }
        const auto& first = *generations_.at(item.key(group.arms.front()));
        history.push_back({"model", reply_text(first.generation, target.tokenizer.get())});
      }
    }
    return true;
  }

  bool has_item(const Group& group, const Item& item) const {
    return std::all_of(group.arms.begin(), group.arms.end(), [&](const Arm& arm) {
      const auto key = item.key(arm);
      const bool is_traced =
          group.config->trace && traced_arms_.contains({arm.sweep_point, arm.config->name});
      const auto found = generations_.find(key);
      return found != generations_.end() && (!is_traced || traced_.contains(key)) &&
             !has_stale_score(group.config->quality, *found->second);
    });
  }

  const ExperimentPlan& plan_;
  std::vector<Group> groups_;
  std::vector<GenerationRecord> records_;
  std::vector<TraceRecord> traces_;
  std::map<GenerationKey, const GenerationRecord*> generations_;
  std::set<GenerationKey> traced_;
  std::set<std::pair<std::string, std::string>> traced_arms_;  ///< by sweep point and name
};

/// An object of the folder; null when it is none.
nlohmann::json read_json_object(const fs::path& file) {
  auto json = nlohmann::json::parse(read_text_file(file), nullptr, false);
  return json.is_object() ? json : nlohmann::json();
}

/// What the run itself had to say, that is all notes but those which follow from its figures.
std::vector<std::string> notes_of_run(const nlohmann::json& summary, const Report& report) {
  const auto derived = reader_notes(report);
  auto notes = report.notes;
  for (const auto& note : summary.value("notes", nlohmann::json::array())) {
    if (note.is_string() && std::find(derived.begin(), derived.end(), note) == derived.end()) {
      notes.push_back(note.get<std::string>());
    }
  }
  return notes;
}

}  // namespace

std::optional<Report> finished_report(const ExperimentPlan& plan, const RunOptions& options) {
  const fs::path& folder = options.out;
  for (const char* name : {"config.yaml", "environment.json", "generations.jsonl", "steps.jsonl"}) {
    if (!fs::exists(folder / name)) {
      return std::nullopt;
    }
  }
  if (!has_report_files(folder) ||
      read_text_file(folder / "config.yaml") != run_config_text(plan, group_arms(plan), folder)) {
    return std::nullopt;
  }
  const RecordedRun run(plan, folder);
  const auto summary = read_json_object(folder / "summary.json");
  const auto environment = read_json_object(folder / "environment.json");
  if (!run.is_whole() || summary.is_null() || environment.is_null()) {
    return std::nullopt;
  }
  Report report = describe_plan(plan);
  report.command = options.command;
  report.environment = parse_environment(environment);
  report.summary = summarize_run(plan, in_plan_order(plan, run.records()));
  report.notes = notes_of_run(summary, report);
  return report;
}

}  // namespace specdec
