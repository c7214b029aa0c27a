#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "experiments/report/headline.h"
#include "experiments/report/report.h"
#include "experiments/report/report_figures.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr size_t kMostDivergences = 100;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --text: #1c1e21; --page: #ffffff; --soft: #5b6168;
  --line: #d6d9dd; --band: #f4f6f8; --link: #0a5fa5; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e6e9; --page: #16181b; --soft: #a2a9b1; --line: #3a3f45; --band: #1f2226;
    --link: #7cb8ee; } }
body { color: var(--text); background: var(--page); font: 16px/1.5 system-ui, sans-serif;
  max-width: 76rem; margin: 0 auto; padding: 1.5rem 1.2rem 4rem; }
h1 { margin: 0 0 .3rem; font-size: 1.8rem; }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.25rem; }
h1, td.name, li, dt, p { overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); }
.lead { font-size: 1.1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .35rem .5rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { background: var(--band); font-weight: 600; white-space: normal; vertical-align: bottom; }
th.name, td.name { text-align: left; white-space: normal; min-width: 8rem; }
figure { margin: 1rem 0 2rem; }
figure svg { width: 100%; max-width: 760px; height: auto; }
figcaption { max-width: 46rem; font-size: .92rem; }
dl { columns: 2 26rem; column-gap: 2.5rem; font-size: .92rem; }
dl div { break-inside: avoid; padding-bottom: .5rem; }
dt { font-weight: 600; }
dd { margin: 0; }
pre { background: var(--band); padding: .8rem 1rem; overflow-x: auto; font-size: .85rem; }
code { font-size: .9em; }
details { margin: .6rem 0; }
summary { cursor: pointer; font-weight: 600; }
)";

std::string paragraph(const std::string& text, const char* style = "") {
  return fmt::format("<p{}>{}</p>\n", style, escape_html(text));
}

std::string cell(const std::string& text, bool head, bool name) {
  const char* tag = head ? "th" : "td";
  std::string html = escape_html(text);
  for (size_t at = html.find('/'); head && at != std::string::npos; at = html.find('/', at + 1)) {
    html.insert(at + 1, "<wbr>");  // heads may break where numbers must not
  }
  return fmt::format("<{}{}>{}</{}>", tag, name ? " class=\"name\"" : "", html, tag);
}

/// A table whose first `names` columns are text.
std::string table(const std::vector<std::vector<std::string>>& rows, size_t names) {
  std::string html = "<div class=\"scroll\"><table>\n";
  for (size_t row = 0; row < rows.size(); ++row) {
    html += row == 0 ? "<thead><tr>" : "<tr>";
    for (size_t i = 0; i < rows[row].size(); ++i) {
      html += cell(rows[row][i], row == 0, i < names);
    }
    html += row == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

void write_header(std::ostream& out, const Report& report) {
  const Environment& machine = report.environment;
  out << "<h1>" << escape_html(report.name) << "</h1>\n";
  if (!report.description.empty()) {
    out << paragraph(report.description);
  }
  for (const std::string& warning : measurement_warnings(report)) {
    out << paragraph("Warning: " + warning, " class=\"lead\"");
  }
  out << paragraph(headline(report), " class=\"lead\"");
  out << paragraph(
      fmt::format("{}; {} on {} ({} cores, {} threads), GPU: {}; commit {}", machine.date,
                  machine.dtype.empty() ? "run" : machine.dtype, machine.cpu, machine.cores,
                  machine.threads, machine.gpu, machine.commit),
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
        << (strategy.lossy ? " <b>Lossy.</b>" : "")
        << (strategy.reproducible ? "" : " <b>Not reproducible.</b>") << "</li>\n";
  }
  out << "</ul>\n";
}

/// Rows over all prompts, or those of categories.
void write_results(std::ostream& out, const Report& report, bool by_category) {
  std::vector<std::vector<std::string>> rows(1);
  if (by_category) {
    rows[0].emplace_back("prompts");
  }
  rows[0].emplace_back("strategy");
  for (const ReportColumn& column : report_columns(report)) {
    rows[0].push_back(column.title);
  }
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() == by_category) {
      continue;
    }
    std::vector<std::string> cells;
    if (by_category) {
      cells.push_back(row.category);
    }
    cells.push_back(row_name(row));
    for (const ReportColumn& column : report_columns(report)) {
      cells.push_back(column.cell(row));
    }
    rows.push_back(std::move(cells));
  }
  if (rows.size() > 1) {
    out << (by_category ? "<h2>By category of prompt</h2>\n" : "<h2>Results</h2>\n")
        << table(rows, by_category ? 2 : 1);
  }
}

void write_definitions(std::ostream& out, const Report& report) {
  out << "<details open><summary>What the columns mean</summary>\n<dl>\n";
  for (const ReportColumn& column : report_columns(report)) {
    out << "<div><dt>" << escape_html(column.title) << "</dt><dd>" << escape_html(column.definition)
        << "</dd></div>\n";
  }
  out << "</dl>\n</details>\n";
}

void write_notes(std::ostream& out, const Report& report) {
  const auto notes = reader_notes(report);
  if (notes.empty()) {
    return;
  }
  out << "<h2>Warnings</h2>\n<ul>\n";
  for (const std::string& note : notes) {
    out << "<li>" << escape_html(note) << "</li>\n";
  }
  out << "</ul>\n";
}

void write_figures(std::ostream& out, const Report& report) {
  const auto figures = draw_figures(report);
  out << "<h2>Figures</h2>\n";
  if (figures.empty()) {
    out << paragraph(
        "There are none: gnuplot, which draws them, is not installed or failed, or nothing was "
        "measured. The tables hold all figures.");
    return;
  }
  if (!report.sweep_keys.empty()) {
    out << paragraph(
        "Outside the sweep's own figures, each strategy is shown at its fastest "
        "point; choosing it favours it a little.");
  }
  for (const ReportFigure& figure : figures) {
    out << "<figure>\n"
        << figure.svg << "\n<figcaption>" << escape_html(figure.caption)
        << "</figcaption>\n</figure>\n";
  }
}

void write_positions(std::ostream& out, const Report& report) {
  std::vector<std::vector<std::string>> rows = {{"strategy", "position", "drafted", "reached",
                                                 "accepted", "of those reached", "questions",
                                                 "of all drafts"}};
  for (const SummaryRow& row : report.summary.rows) {
    if (!row.category.empty()) {
      continue;
    }
    const auto unconditional = unconditional_acceptance(row.counts);
    for (size_t i = 0; i < unconditional.size(); ++i) {
      rows.push_back({row_name(row), fmt::format("{}", i + 1),
                      fmt::format("{}", row.counts.drafted_at[i]),
                      fmt::format("{}", row.counts.reached_at[i]),
                      fmt::format("{}", row.counts.accepted_at[i]), position_text(row, i),
                      fmt::format("{}", row.position_intervals.at(i).questions),
                      percent_text(unconditional[i])});
    }
  }
  if (rows.size() > 1) {
    out << "<details><summary>Acceptance by position, in numbers</summary>\n"
        << paragraph(
               "Drafted: drafts at least that deep. Reached: of those, with all positions before "
               "it accepted; their share is followed by its 95 % interval over the questions that "
               "reached the position. The last column divides by all drafts, shorter ones too; one "
               "plus its "
               "sum is the acceptance length.")
        << table(rows, 1) << "</details>\n";
  }
}

void write_divergences(std::ostream& out, const Report& report) {
  const auto& divergences = report.summary.divergences;
  if (report.summary.compared == 0) {
    return;
  }
  out << "<h2>Same tokens?</h2>\n"
      << paragraph(fmt::format(
             "{} greedy generations were compared with the first strategy's; {} differ.",
             report.summary.compared, divergences.size()));
  if (divergences.empty()) {
    return;
  }
  out << paragraph(
      "A lossless greedy strategy picks the target's best token everywhere. Where the best two "
      "logits nearly tie (a gap of about 1e-5 in float32, 1e-2 in bfloat16), a forward of another "
      "width can round the other way, and the texts part from there on. A large gap is no "
      "rounding: "
      "it means that the strategy is not exact.");
  out << "<ul>\n";
  for (const std::string& line : divergence_lines(report)) {
    out << "<li>" << escape_html(line) << "</li>\n";
  }
  out << "</ul>\n";
  std::vector<std::vector<std::string>> rows = {{"strategy", "prompt", "repeat", "position",
                                                 "gap of the first", "gap of this one",
                                                 "token of the first", "token of this one"}};
  const auto gap_text = [](double gap) {
    return !std::isnan(gap) ? fmt::format("{:.3g}", gap) : "-";
  };
  const auto token_text = [](Token token) {
    return token < 0 ? std::string("ended") : fmt::format("{}", token);
  };
  for (const Divergence& each : divergences) {
    if (rows.size() > kMostDivergences) {
      break;
    }
    const bool swept = !each.key.sweep_point.empty();
    rows.push_back({each.key.strategy + (swept ? ", " + each.key.sweep_point : ""),
                    each.key.prompt_id, fmt::format("{}", each.key.repeat),
                    fmt::format("{}", each.position), gap_text(each.gap_first),
                    gap_text(each.gap_other), token_text(each.token_first),
                    token_text(each.token_other)});
  }
  out << "<details><summary>Where they part</summary>\n" << table(rows, 2);
  if (divergences.size() > kMostDivergences) {
    out << paragraph(
        fmt::format("{} more are in summary.json.", divergences.size() - kMostDivergences));
  }
  out << "</details>\n";
}

void write_origin(std::ostream& out, const Report& report) {
  const Environment& machine = report.environment;
  std::vector<std::vector<std::string>> rows = {{"what", "value"}};
  const auto add = [&](const std::string& what, const std::string& value) {
    rows.push_back({what, value.empty() ? "-" : value});
  };
  add("commit", machine.commit);
  add("date", machine.date);
  add("system", machine.host_system);
  add("CPU", machine.cpu);
  add("cores, threads", fmt::format("{}, {}", machine.cores, machine.threads));
  add("GPU", machine.gpu);
  add("device, dtype", machine.device + ", " + machine.dtype);
  add("compiler, build", machine.compiler + ", " + machine.build_type);
  for (const auto& [library, version] : machine.libraries) {
    add(library, version);
  }
  for (const auto& [weights, fingerprint] : machine.weights) {
    add("weights " + weights, fingerprint);
  }
  out << "<h2>Origin</h2>\n<details><summary>Machine, versions and weights</summary>\n"
      << table(rows, 2) << "</details>\n<details><summary>Resolved config</summary>\n<pre><code>"
      << escape_html(report.config_yaml) << "</code></pre>\n</details>\n"
      << paragraph(
             "Beside this page lie config.yaml, environment.json, generations.jsonl and "
             "steps.jsonl (one line per generation and per step), summary.json and "
             "summary.csv.",
             " class=\"soft\"");
}

}  // namespace

void write_html(std::ostream& out, const Report& report) {
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>"
      << escape_html(report.name) << "</title>\n<style>" << kStyle << "</style>\n</head>\n<body>\n";
  write_header(out, report);
  write_strategies(out, report);
  write_notes(out, report);
  write_results(out, report, false);
  write_definitions(out, report);
  write_figures(out, report);
  write_results(out, report, true);
  write_positions(out, report);
  write_divergences(out, report);
  write_origin(out, report);
  out << "</body>\n</html>\n";
}

}  // namespace specdec
