#include "experiments/run/finished_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/report/report_text.h"
#include "experiments/report/spec_bench.h"
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

bool holds_text(const fs::path& file, const std::string& text) {
  return read_text_file(file, size_t{1} << 30U) == text;
}

/// Whether the folder's files have the figures of the report.
bool has_figures(const fs::path& folder, const nlohmann::json& summary, const Report& report,
                 std::span<const GenerationRecord> records) {
  std::ostringstream json;
  std::ostringstream csv;
  std::ostringstream tables;
  write_json(json, report);
  write_csv(csv, report);
  write_spec_bench(tables, report, records);
  return summary.value("rows", nlohmann::json()) == nlohmann::json::parse(json.str()).at("rows") &&
         holds_text(folder / "summary.csv", csv.str()) &&
         holds_text(folder / "spec_bench.md", tables.str());
}

/// What the run itself had to say: its notes but for those which follow from figures. Reports of
/// older versions do not tell these apart; theirs are kept where the figures are the same.
std::vector<std::string> notes_of_run(const nlohmann::json& summary, const Report& report,
                                      bool is_current) {
  const auto derived = reader_notes(report);
  auto notes = report.notes;
  const char* key = is_current && !summary.contains("run_notes") ? "notes" : "run_notes";
  for (const auto& note : summary.value(key, nlohmann::json::array())) {
    if (note.is_string() && std::find(derived.begin(), derived.end(), note) == derived.end()) {
      notes.push_back(note.get<std::string>());
    }
  }
  return notes;
}

/// A run that is finished: its folder holds this very config, every generation and trace of it, and
/// the files of the report.
struct FinishedRun {
  Report report;
  std::vector<GenerationRecord> records;  ///< as they were made
  /// False where the folder's files of the report have other figures than this program computes of
  /// the records: another version made them.
  bool is_current = true;
};

/// nullopt: there is something left to do. Only reads, and loads no model.
std::optional<FinishedRun> finished_run(const ExperimentPlan& plan, const RunOptions& options) {
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
  FinishedRun finished{.report = describe_plan(plan), .records = run.records()};
  Report& report = finished.report;
  const auto records = in_plan_order(plan, finished.records);
  const auto command = summary.find("command");  // of the run, not of who looks at it later
  report.command = command != summary.end() && command->is_string() ? command->get<std::string>()
                                                                    : options.command;
  report.environment = parse_environment(environment, (folder / "environment.json").string());
  report.summary = summarize_run(plan, records);
  finished.is_current = has_figures(folder, summary, report, records);
  report.notes = notes_of_run(summary, report, finished.is_current);
  return finished;
}

/// Writes the files of the report anew.
void remake_report(const ExperimentPlan& plan, const RunOptions& options, FinishedRun& run) {
  RunFolder folder(options.out, run_config_text(plan, group_arms(plan), options.out));
  run.report.details = run_details(plan, options.out, run.records);
  write_report_files(folder, run.report, in_plan_order(plan, run.records));
}

/// Why nothing is run; where another version of the program made the folder's report, it is made
/// anew.
std::string finished_text(const ExperimentPlan& plan, const RunOptions& options,
                          FinishedRun& finished) {
  const std::string beginning = options.out.string() + ": this run is finished, so nothing is run";
  const std::string advice = "for a new one name another folder with --out\n";
  if (finished.is_current) {
    return fmt::format("{} or changed; {}", beginning, advice);
  }
  try {
    remake_report(plan, options, finished);
    return fmt::format(
        "{}; its report had other figures, of another version of specdec, and is made anew from "
        "the records; {}",
        beginning, advice);
  } catch (const Error& error) {
    return fmt::format(
        "{}; its report has other figures, of another version of specdec, and cannot be made "
        "anew: {}\n",
        beginning, error.what());
  }
}

}  // namespace

std::optional<Report> finished_report(const ExperimentPlan& plan, const RunOptions& options,
                                      std::ostream& log) {
  auto finished = finished_run(plan, options);
  if (!finished) {
    return std::nullopt;
  }
  const std::string text = finished_text(plan, options, *finished);
  log << (options.quiet ? "" : text);
  return std::move(finished->report);
}

}  // namespace specdec
