#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "experiments/report/conditions.h"
#include "experiments/report/headline.h"
#include "experiments/report/report.h"
#include "experiments/report/report_figures.h"
#include "experiments/report/report_page.h"
#include "experiments/report/report_style.h"
#include "experiments/report/report_tables.h"
#include "experiments/report/report_text.h"
#include "experiments/report/svg_plot.h"

namespace specdec {
namespace {

std::string paragraph(const std::string& text, const char* style = "") {
  return fmt::format("<p{}>{}</p>\n", style, escape_html(text));
}

/// "CSV · LaTeX" below a table or figure.
std::string file_links(const std::string& base, const std::vector<std::string>& endings) {
  std::string html = "<p class=\"files\">";
  for (size_t i = 0; i < endings.size(); ++i) {
    html += fmt::format("{}<a href=\"{}.{}\">{}</a>", i == 0 ? "" : " · ", base, endings[i],
                        endings[i] == "tex"   ? "LaTeX"
                        : endings[i] == "csv" ? "CSV"
                                              : "SVG");
  }
  return html + "</p>\n";
}

/// The page and its files are made from the same tables and figures.
struct ReportParts {
  std::vector<ReportTable> tables;
  ReportFigures figures;

  const ReportTable* table(std::string_view id) const {
    const auto found = std::find_if(tables.begin(), tables.end(),
                                    [&](const ReportTable& each) { return each.id == id; });
    return found == tables.end() ? nullptr : &*found;
  }
};

std::string linked_table(const ReportTable& table) {
  return table_html(table) + file_links("tables/" + table.id, {"csv", "tex"});
}

void write_warnings(std::ostream& out, const Report& report) {
  const auto notes = reader_notes(report);
  if (notes.empty()) {
    return;
  }
  out << "<div class=\"warnings\"><b>Warnings</b>\n<ul>\n";
  for (const std::string& note : notes) {
    out << "<li>" << escape_html(note) << "</li>\n";
  }
  out << "</ul></div>\n";
}

/// "models/target (float32)"; runs of earlier versions do not name the model.
std::string model_text(const Environment& machine) {
  const std::string formats = machine.dtype.empty() ? "run" : machine.dtype;
  return machine.model.empty() ? formats : fmt::format("{} ({})", machine.model, formats);
}

void write_header(std::ostream& out, const Report& report) {
  const Environment& machine = report.environment;
  out << "<h1>" << escape_html(report.name) << "</h1>\n";
  if (!report.description.empty()) {
    out << paragraph(report.description);
  }
  write_warnings(out, report);
  for (const std::string& sentence : headlines(report)) {
    out << paragraph(sentence, " class=\"lead\"");
  }
  out << paragraph(
      fmt::format("{}; {} on {} ({} cores, {} thread{}), GPU: {}; commit {}", machine.date,
                  model_text(machine), machine.cpu, machine.cores, machine.threads,
                  machine.threads == 1 ? "" : "s", machine.gpu, machine.commit),
      " class=\"soft\"");
  if (!report.command.empty()) {
    out << "<pre><code>" << escape_html(report.command) << "</code></pre>\n";
  }
}

void write_strategies(std::ostream& out, const Report& report) {
  if (report.strategies.empty()) {
    return;
  }
  out << "<h2>What was compared</h2>\n<ul>\n";
  for (const ReportStrategy& strategy : report.strategies) {
    out << "<li><b>" << escape_html(strategy.name) << "</b>"
        << (strategy.description.empty() ? "" : ": " + escape_html(strategy.description))
        << (is_swept(report.summary.rows, strategy.name) ? " <b>Swept;</b> the first point." : "")
        << (strategy.lossy ? " <b>Lossy.</b>" : "")
        << (strategy.uncertified.empty() ? "" : " <b>Unverified.</b>")
        << (strategy.reproducible ? "" : " <b>Not reproducible.</b>") << "</li>\n";
  }
  out << "</ul>\n";
}

/// A table under a heading of its own.
void write_section(std::ostream& out, const ReportParts& parts, const char* id,
                   const char* heading) {
  if (const ReportTable* table = parts.table(id)) {
    out << "<h2>" << heading << "</h2>\n" << linked_table(*table);
  }
}

void write_quality(std::ostream& out, const Report& report, const ReportParts& parts) {
  const ReportTable* table = parts.table("quality");
  if (table == nullptr) {
    return;
  }
  out << "<h2>Quality</h2>\n";
  const auto scored = std::find_if(report.summary.rows.begin(), report.summary.rows.end(),
                                   [](const SummaryRow& row) { return row.quality.has_value(); });
  if (scored != report.summary.rows.end()) {
    out << paragraph(
        fmt::format("A strategy counts as not worse if the interval of the difference in correct "
                    "answers lies above the non-inferiority margin, -{:g} percentage points.",
                    100.0 * scored->quality->margin));
  }
  const bool measured =
      std::any_of(report.summary.rows.begin(), report.summary.rows.end(),
                  [](const SummaryRow& row) { return row.log_probs.has_value(); });
  if (measured) {
    out << paragraph(
        "Lossless strategies keep the target's distribution and need no such measure. For lossy "
        "ones, log p is not a score: texts more likely than plain samples are not better, only "
        "closer to the target's modes.");
  }
  out << linked_table(*table);
}

void write_definitions(std::ostream& out, const Report& report) {
  out << "<details><summary>What the columns mean</summary>\n<dl>\n";
  for (const ReportColumn& column : report_columns(report)) {
    out << "<div><dt>" << escape_html(column.title) << "</dt><dd>" << escape_html(column.definition)
        << "</dd></div>\n";
  }
  out << "</dl>\n</details>\n";
}

void write_left_out(std::ostream& out, const std::vector<LeftOutFigure>& left_out) {
  if (left_out.empty()) {
    return;
  }
  out << "<details><summary>Figures that this run has no data for</summary>\n<ul>\n";
  for (const LeftOutFigure& figure : left_out) {
    out << fmt::format("<li>{}: {}</li>\n", escape_html(figure.title), escape_html(figure.reason));
  }
  out << "</ul>\n</details>\n";
}

void write_figures(std::ostream& out, const Report& report, const ReportParts& parts) {
  out << "<h2>Figures</h2>\n";
  if (!can_draw()) {
    out << paragraph(
        "Most are missing: gnuplot, which draws them, is not installed or failed. The tables hold "
        "all numbers.");
  }
  if (!report.sweep_keys.empty()) {
    out << paragraph(
        conditions_of(report).size() > 1
            ? "Outside the figures of the sweep, each strategy is shown at its fastest setting "
              "under each condition. This selection makes it look slightly better than it is."
            : "Outside the figures of the sweep, each strategy is shown at its fastest setting. "
              "This selection makes it look slightly better than it is.");
  }
  out << "<div class=\"figures\">\n";
  for (const ReportFigure& figure : parts.figures.figures) {
    out << "<figure id=\"figure-" << figure.id << "\">\n"
        << figure.svg << "\n<figcaption>" << escape_html(figure.caption) << "</figcaption>\n"
        << file_links("figures/" + figure.id, {"svg", "csv", "tex"}) << "</figure>\n";
  }
  out << "</div>\n";
  if (can_draw()) {
    write_left_out(out, parts.figures.left_out);
  }
}

/// A table that is only opened on demand.
void write_more(std::ostream& out, const ReportParts& parts, const char* id, const char* summary) {
  if (const ReportTable* table = parts.table(id)) {
    out << fmt::format("<details><summary>{}</summary>\n", summary) << paragraph(table->caption)
        << linked_table(*table) << "</details>\n";
  }
}

void write_divergences(std::ostream& out, const Report& report, const ReportParts& parts) {
  const auto& divergences = report.summary.divergences;
  if (report.summary.compared == 0) {
    return;
  }
  out << "<h2>Same tokens?</h2>\n"
      << paragraph(fmt::format("{} greedy generations were compared token by token with the first "
                               "strategy's; {} differ.",
                               report.summary.compared, divergences.size()));
  if (divergences.empty()) {
    return;
  }
  out << paragraph(
      "A lossless greedy strategy picks the target's most likely token everywhere. Where the two "
      "largest logits nearly tie (a gap of about 1e-5 in float32, 1e-2 in bfloat16), a forward "
      "pass of another width can round the other way, and the texts diverge from there on. A large "
      "gap is not a rounding error: it means that the strategy is not exact.");
  out << "<ul>\n";
  for (const std::string& line : divergence_lines(report)) {
    out << "<li>" << escape_html(line) << "</li>\n";
  }
  out << "</ul>\n";
  write_more(out, parts, "divergences", "Where they diverge");
}

void write_origin(std::ostream& out, const Report& report) {
  const Environment& machine = report.environment;
  ReportTable table{.id = "origin",
                    .caption = "",
                    .header = {"what", "value"},
                    .rows = {},
                    .names = 2,
                    .styles = {}};
  const auto add = [&](const std::string& what, const std::string& value) {
    table.rows.push_back({what, value.empty() ? "-" : value});
  };
  add("commit", machine.commit);
  add("date", machine.date);
  add("system", machine.host_system);
  add("CPU", machine.cpu);
  add("cores, threads", fmt::format("{}, {}", machine.cores, machine.threads));
  if (machine.prefill_threads > 0) {
    add("threads of prefills", std::to_string(machine.prefill_threads));
  }
  add("GPU", machine.gpu);
  add("model", machine.model);
  add("device, dtype", machine.device + ", " + machine.dtype);
  add("compiler, build", machine.compiler + ", " + machine.build_type);
  for (const auto& [library, version] : machine.libraries) {
    add(library, version);
  }
  for (const auto& [weights, fingerprint] : machine.weights) {
    add("weights " + weights, fingerprint);
  }
  out << "<h2>Origin</h2>\n<details><summary>Machine, versions and weights</summary>\n"
      << table_html(table) << "</details>\n<details><summary>Resolved config</summary>\n<pre><code>"
      << escape_html(report.config_yaml) << "</code></pre>\n</details>\n"
      << paragraph(
             "The run folder also contains config.yaml, environment.json, generations.jsonl and "
             "steps.jsonl (one line per generation and per step), summary.json and summary.csv, "
             "and in tables/ and figures/ everything this page shows.",
             " class=\"soft\"");
}

void write_page(std::ostream& out, const Report& report, const ReportParts& parts) {
  out << page_head(report.name);
  write_header(out, report);
  write_section(out, parts, "results", "Results");
  write_section(out, parts, "conditions", "By condition and strategy");
  write_quality(out, report, parts);
  write_section(out, parts, "grammar", "Grammar");
  write_definitions(out, report);
  write_strategies(out, report);
  write_figures(out, report, parts);
  write_examples(out, report);
  write_section(out, parts, "categories", "By category of prompt");
  write_more(out, parts, "quality_categories", "Quality by category");
  write_more(out, parts, "grammar_categories", "Grammar by category");
  out << "<h2>Further tables</h2>\n";
  write_more(out, parts, "more", "Further results");
  write_more(out, parts, "more_categories", "Further results by category");
  write_more(out, parts, "positions", "Acceptance by position");
  write_more(out, parts, "contexts", "Acceptance by context length");
  write_more(out, parts, "questions", "Every question");
  write_divergences(out, report, parts);
  write_origin(out, report);
  out << page_end();
}

ReportParts make_parts(const Report& report) {
  return {.tables = report_tables(report), .figures = draw_figures(report)};
}

}  // namespace

std::string page_head(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n",
      escape_html(title), kReportStyle);
}

std::string page_end() {
  return fmt::format("<script>{}</script>\n</body>\n</html>\n", kReportScript);
}

void write_html(std::ostream& out, const Report& report) {
  write_page(out, report, make_parts(report));
}

std::vector<ReportFile> report_files(const Report& report) {
  const ReportParts parts = make_parts(report);
  std::ostringstream page;
  write_page(page, report, parts);
  std::vector<ReportFile> files = {{"report.html", page.str()}};
  for (const ReportTable& table : parts.tables) {
    files.push_back({"tables/" + table.id + ".csv", table_csv(table)});
    files.push_back({"tables/" + table.id + ".tex", table_latex(table)});
  }
  for (const ReportFigure& figure : parts.figures.figures) {
    const std::string base = "figures/" + figure.id;
    files.push_back(
        {base + ".svg", "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n" + figure.svg + "\n"});
    files.push_back({base + ".csv", table_csv(figure.data)});
    files.push_back({base + ".tex", table_latex(figure.data)});
  }
  return files;
}

}  // namespace specdec
