#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/json_text.h"
#include "core/formats/strict_json.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/replaced_file.h"
#include "experiments/config/output_path.h"
#include "experiments/report/run_comparison.h"
#include "experiments/run/record_order.h"
#include "experiments/run/recorded_notes.h"
#include "experiments/run/recorded_sweep.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigLines = 8;

struct CompareArguments {
  std::vector<std::string> runs;
  JsonOption json;
  std::string html;
};

std::vector<GenerationRecord> read_run(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw ConfigError(
        fmt::format("{}: is not a folder; compare wants two run folders, such as "
                    "runs/pair",
                    folder.string()));
  }
  if (!fs::exists(folder / "generations.jsonl")) {
    throw ConfigError(fmt::format(
        "{}: is not a run folder (it has no generations.jsonl); `specdec run` makes one",
        folder.string()));
  }
  auto records = load_ordered_records(folder);
  if (records.empty()) {
    throw ConfigError(fmt::format("{}: holds no finished generation yet", folder.string()));
  }
  return records;
}

/// "threads: 1 in A, 2 in B" for what can change a speed or a text.
void note_environments(const fs::path& a, const fs::path& b, std::vector<std::string>& notes) {
  const auto in_a = recorded_environment(a);
  const auto in_b = recorded_environment(b);
  for (const char* key : {"cpu", "cores", "threads", "gpu", "device", "dtype", "host_system",
                          "build_type", "commit", "weights"}) {
    const auto value_a = in_a.value(key, nlohmann::json());
    const auto value_b = in_b.value(key, nlohmann::json());
    if (value_a != value_b) {
      notes.push_back(fmt::format("{}: {} in A, {} in B.", key, value_a.dump(), value_b.dump()));
    }
  }
}

/// Other load on the machine while a run was measured, which its intervals do not tell.
void note_load(const fs::path& folder, std::span<const GenerationRecord> records, const char* side,
               std::vector<std::string>& notes) {
  if (const std::string note = load_note(folder, records); !note.empty()) {
    notes.push_back(fmt::format("{}: {}", side, note));
  }
}

std::vector<std::string> config_lines(const fs::path& folder) {
  std::vector<std::string> lines;
  if (fs::exists(folder / "config.yaml")) {
    std::istringstream text(read_file(folder / "config.yaml"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(line);
    }
  }
  return lines;
}

/// Lines of one config that the other has not.
void note_config(const fs::path& own, const fs::path& other, const char* side,
                 std::vector<std::string>& notes) {
  const auto there = config_lines(other);
  const std::set<std::string> known(there.begin(), there.end());
  size_t count = 0;
  for (const std::string& line : config_lines(own)) {
    if (!known.contains(line) && ++count <= kMaxConfigLines) {
      notes.push_back(fmt::format("config, only in {}: {}", side, line));
    }
  }
  if (count > kMaxConfigLines) {
    notes.push_back(
        fmt::format("config: {} more lines are only in {}", count - kMaxConfigLines, side));
  }
}

/// The comparison is of whole texts, whatever the runs' own reports leave out.
void note_loops(const fs::path& a, const fs::path& b, std::vector<std::string>& notes) {
  for (const fs::path& folder : {a, b}) {
    if (std::string note = whole_texts_note(folder); !note.empty()) {
      notes.push_back(std::move(note));
    }
  }
}

/// When the runs were measured, of which the intervals say nothing.
void note_times(const fs::path& a, const fs::path& b, std::vector<std::string>& notes) {
  notes.emplace_back(
      fs::equivalent(a, b)
          ? "A and B are the same run, so every ratio is 1 and every text equal: give two runs."
          : "A and B ran at different times: the intervals are over questions only; put both in "
            "one config, or repeat each.");
}

/// Throws ConfigError for a page that cannot be written, or in place of a file that is no page.
void check_page(const std::string& file) {
  if (const std::string why = refused_output(file); !why.empty()) {
    throw ConfigError("--html: " + why);
  }
  keep_other_file("--html", file, "page", [&] { return begins_with(file, "<!doctype html>"); });
}

int compare(const CommandContext& context, const CompareArguments& arguments) {
  refuse_model_flags(context.flags,
                     "compare reads what runs have written, without a model; leave it out");
  if (!arguments.html.empty()) {
    check_page(arguments.html);
  }
  JsonOutput json(arguments.json, context.out);
  const fs::path folder_a = arguments.runs.at(0);
  const fs::path folder_b = arguments.runs.at(1);
  const auto records_a = read_run(folder_a);
  const auto records_b = read_run(folder_b);
  const RecordedSweep sweep_a(folder_a);
  const RecordedSweep sweep_b(folder_b);
  RunComparison comparison =
      compare_runs({folder_a.string(), records_a,
                    [&](const auto& label) { return sweep_a.condition_of(label); }},
                   {folder_b.string(), records_b,
                    [&](const auto& label) { return sweep_b.condition_of(label); }});
  if (comparison.shared > 0) {
    note_times(folder_a, folder_b, comparison.notes);
  }
  note_load(folder_a, records_a, "A", comparison.notes);
  note_load(folder_b, records_b, "B", comparison.notes);
  note_loops(folder_a, folder_b, comparison.notes);
  note_environments(folder_a, folder_b, comparison.notes);
  note_config(folder_a, folder_b, "A", comparison.notes);
  note_config(folder_b, folder_a, "B", comparison.notes);
  if (!arguments.html.empty()) {
    std::ostringstream page;
    write_comparison_html(page, comparison);
    write_file(arguments.html, page.str());
  }
  json.write_result(
      [&](std::ostream& out) { write_comparison(out, comparison); },
      [&](std::ostream& out) { out << json_text(comparison_json(comparison), 2) << "\n"; });
  return 0;
}

}  // namespace

void add_compare_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("compare", "compare two runs, paired by prompt");
  const auto arguments = std::make_shared<CompareArguments>();
  command->add_option("RUN", arguments->runs, "two run folders, A and B")->required()->expected(2);
  add_json_option(*command, arguments->json, "one JSON object");
  command->add_option("--html", arguments->html, "also write an HTML page to FILE")
      ->type_name("FILE")
      ->check(not_empty("a file"));
  command->footer(
      "B/A is the speed of B relative to A on the generations that both contain: same strategy, "
      "sweep\n"
      "point, prompt and repeat, and prompts of equal length.\n"
      "Example:\n"
      "  specdec compare runs/before runs/after --html runs/comparison.html");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return compare(context, *arguments); };
  });
}

}  // namespace specdec
