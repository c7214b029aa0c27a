#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/formats/json_text.h"
#include "experiments/cli/commands.h"
#include "experiments/report/report_text.h"
#include "experiments/run/import_counts.h"
#include "experiments/run/recorded_notes.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

struct ImportArguments {
  std::vector<std::string> sources;
  JsonOption json;
};

/// "label=path", or a path; an existing path is taken as it is.
std::pair<std::string, std::filesystem::path> split_label(const std::string& source) {
  const size_t equals = source.find('=');
  if (equals == std::string::npos || std::filesystem::exists(source)) {
    return {"", source};
  }
  return {source.substr(0, equals), source.substr(equals + 1)};
}

std::vector<ImportedRow> read_rows(const ImportArguments& arguments) {
  std::vector<ImportedRow> rows;
  for (const auto& source : arguments.sources) {
    const auto [label, path] = split_label(source);
    for (ImportedRow& row : import_counts(path)) {
      row.source = label.empty() ? row.source : label + ": " + row.source;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

/// Where a run's report has other figures than its row, which is of whole texts.
std::vector<std::string> row_notes(const ImportArguments& arguments) {
  std::vector<std::string> notes;
  for (const auto& source : arguments.sources) {
    if (auto note = whole_texts_note(split_label(source).second); !note.empty()) {
      notes.push_back(std::move(note));
    }
  }
  return notes;
}

std::string count_text(int64_t count) { return count > 0 ? fmt::format("{}", count) : "-"; }

void print_rows(std::ostream& out, const std::vector<ImportedRow>& rows) {
  std::vector<Cells> table = {{"source", "drafts", "drafted", "accepted", "acceptance",
                               "acceptance length", "tokens/step", "by position",
                               "tokens/s with prefill"}};
  for (const ImportedRow& row : rows) {
    const Counts& counts = row.counts;
    std::string positions;
    if (counts.drafting_steps > 0) {
      for (const double rate : unconditional_acceptance(counts)) {
        positions += (positions.empty() ? "" : " ") + number_text(rate, 3);
      }
    }
    table.push_back(
        {one_line(row.source, 48), count_text(counts.drafting_steps), count_text(counts.drafted),
         count_text(counts.accepted), percent_text(acceptance_rate(counts)),
         number_text(acceptance_length(counts), 3), number_text(tokens_per_step(counts), 3),
         positions.empty() ? "-" : positions, number_text(total_tokens_per_second(counts), 1)});
  }
  write_aligned(out, table, 1);
  out << "acceptance length: 1 + accepted / drafts. tokens/step: committed / steps, those without "
         "a "
         "draft\nincluded, which Spec-Bench calls mean accepted tokens.\n";
}

int import(const CommandContext& context, const ImportArguments& arguments) {
  JsonOutput json(arguments.json, context.out);
  const auto rows = read_rows(arguments);
  auto list = nlohmann::ordered_json::array();
  for (const ImportedRow& row : rows) {
    list.push_back(row_json(
        {.sweep_point = "", .strategy = row.source, .category = "", .counts = row.counts}));
  }
  const auto notes = row_notes(arguments);
  json.write(json_text(list, 2) + "\n");
  json.commit();
  if (!json.replaces_text()) {
    print_rows(context.out, rows);
  }
  for (const std::string& note : notes) {  // the array has no place for them
    (json.replaces_text() ? context.err : context.out) << "Note: " << note << "\n";
  }
  return 0;
}

}  // namespace

void add_import_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "import", "compare acceptance counts of runs, vLLM, llama.cpp and Spec-Bench");
  const auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option("SOURCE", arguments->sources,
                   "FILE or LABEL=FILE: a run folder, vLLM's /metrics page, llama.cpp's log, an "
                   "answer file of Spec-Bench")
      ->required();
  add_json_option(*command, arguments->json, "an array of rows with all counts and metrics");
  command->footer(
      "All rows use the definitions of docs/benchmark.md; '-' marks what a source does not "
      "report. Of a run with loops: cut they are of whole texts, unlike its report; a note says "
      "so.\n"
      "Example:\n"
      "  specdec import runs/pair server=metrics.txt llama=llama.log answers.jsonl");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return import(context, *arguments); };
  });
}

}  // namespace specdec
