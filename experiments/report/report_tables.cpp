#include "experiments/report/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "experiments/report/acceptance_tables.h"
#include "experiments/report/conditions.h"
#include "experiments/report/report_text.h"
#include "experiments/report/svg_plot.h"

namespace specdec {
namespace {

constexpr size_t kMaxDivergences = 100;

/// `cells`, and then the columns'.
void add_row(const Report& report, const SummaryRow& row, const std::vector<ReportColumn>& columns,
             Cells cells, ReportTable& table) {
  for (const ReportColumn& column : columns) {
    cells.push_back(column.cell(row));
  }
  table.rows.push_back(std::move(cells));
  table.styles.push_back(strategy_index(report, row.strategy));
}

ReportColumn column_named(const Report& report, const std::string& title) {
  const auto columns = report_columns(report);
  return *std::find_if(columns.begin(), columns.end(),
                       [&](const ReportColumn& column) { return column.title == title; });
}

/// Which rows a table has: those over all prompts, or those of single categories.
enum class TableRows { kAllPrompts, kCategories };

/// True of rows whose texts were scored, checked against schemas, or measured.
bool has_quality(const SummaryRow& row) {
  return row.right_share || row.valid_share || row.log_prob;
}

/// A row for each strategy and point of the sweep; empty without columns of its own.
ReportTable columns_table(const Report& report, ColumnTable which, TableRows rows, std::string id,
                          std::string caption) {
  const bool by_category = rows == TableRows::kCategories;
  ReportTable table{.id = std::move(id),
                    .caption = std::move(caption),
                    .header = by_category ? Cells{"category"} : Cells{},
                    .rows = {},
                    .styles = {}};
  const Cells keys = sweep_header(report);
  table.header.insert(table.header.end(), keys.begin(), keys.end());
  table.header.emplace_back("strategy");
  table.names = table.header.size();
  auto columns = report_columns(report);
  const bool is_quality = which == ColumnTable::kQuality;
  const bool is_results = which == ColumnTable::kResults;
  std::erase_if(columns, [&](const ReportColumn& column) { return column.table != which; });
  if (columns.empty()) {
    return table;
  }
  if (!is_results) {
    columns.insert(columns.begin(), column_named(report, "questions"));
  }
  if (is_quality) {  // stands beside the speed that it is paid with
    columns.insert(columns.begin(), report_columns(report).front());
  }
  for (const ReportColumn& column : columns) {
    table.header.push_back(column.title);
  }
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() == by_category || (is_quality && !has_quality(row))) {
      continue;
    }
    Cells names = by_category ? Cells{row.category} : Cells{};
    const Cells values = sweep_cells(report, row);
    names.insert(names.end(), values.begin(), values.end());
    names.push_back(keys.empty() ? row_name(report, row) : row.strategy);
    add_row(report, row, columns, std::move(names), table);
  }
  return table;
}

/// The results once more, by condition and strategy.
ReportTable conditions_table(const Report& report) {
  return {.id = "conditions",
          .caption =
              "Decode speed-up by condition and strategy, each against the first strategy "
              "under the same condition.",
          .header = pivot_header(report),
          .rows = pivot_rows(report),
          .names = report.sweep_keys.size(),
          .styles = {}};
}

ReportTable questions_table(const Report& report) {
  ReportTable table{.id = "questions",
                    .caption = "Every question, summed over its turns and repeats.",
                    .header = {"question", "category", "strategy", "speed-up", "tokens/s",
                               "tokens/step", "tokens"},
                    .rows = {},
                    .names = 3,
                    .styles = {}};
  for (const QuestionResult& result : report.details.questions) {
    const auto per_step =
        result.steps > 0
            ? std::optional(static_cast<double>(result.tokens) / static_cast<double>(result.steps))
            : std::nullopt;
    table.rows.push_back({result.question, result.category,
                          arm_name(report.summary.rows, result.strategy, result.sweep_point),
                          number_text(result.speedup, 2),
                          number_text(result.tokens_per_second(), 1), number_text(per_step, 2),
                          fmt::format("{}", result.tokens)});
    table.styles.push_back(strategy_index(report, result.strategy));
  }
  return table;
}

ReportTable divergences_table(const Report& report) {
  ReportTable table{.id = "divergences",
                    .caption =
                        "Where greedy generations diverge from the first strategy's. Gap: best "
                        "minus second-best logit.",
                    .header = {"strategy", "prompt", "repeat", "position", "gap, first strategy",
                               "gap, this one", "token, first strategy", "token, this one"},
                    .rows = {},
                    .names = 2,
                    .styles = {}};
  for (const Divergence& each : report.summary.divergences) {
    if (table.rows.size() >= kMaxDivergences) {
      table.caption += fmt::format(" {} more are in summary.json.",
                                   report.summary.divergences.size() - kMaxDivergences);
      break;
    }
    Cells cells = {arm_name(report.summary.rows, each.key.strategy, each.key.sweep_point),
                   each.key.prompt_id, fmt::format("{}", each.key.repeat)};
    for (std::string& cell : divergence_cells(each)) {
      cells.push_back(std::move(cell));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string heading(const std::string& text, bool name) {
  std::string html = escape_html(text);
  for (size_t at = html.find('/'); at != std::string::npos; at = html.find('/', at + 1)) {
    if (html.size() - at > 4) {  // headings may break where numbers must not
      html.insert(at + 1, "<wbr>");
    }
  }
  return fmt::format("<th scope=\"col\"{}>{}</th>", name ? " class=\"name\"" : "", html);
}

/// A number's interval may stand below it where the table is narrow.
std::string cell_html(const std::string& text) {
  const size_t open = text.find(" (");
  return open == std::string::npos
             ? escape_html(text)
             : fmt::format("{} <span class=\"interval\">{}</span>",
                           escape_html(text.substr(0, open)), escape_html(text.substr(open + 1)));
}

/// "1.83", "1.71" and "1.95" of "1.83 (1.71 to 1.95)".
struct CellInterval {
  std::string value, low, high;
};

std::optional<CellInterval> parse_interval(const std::string& cell) {
  const size_t open = cell.find(" (");
  const size_t middle = cell.find(" to ", open == std::string::npos ? 0 : open);
  if (open == std::string::npos || middle == std::string::npos || cell.back() != ')') {
    return std::nullopt;
  }
  return CellInterval{cell.substr(0, open), cell.substr(open + 2, middle - open - 2),
                      cell.substr(middle + 4, cell.size() - middle - 5)};
}

/// A number without its unit or remark; other texts as they are.
std::string bare_number(const std::string& cell) {
  if (cell == "-") {
    return "";
  }
  double number = 0.0;
  const auto [end, failure] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  const std::string rest(end, cell.data() + cell.size());
  const bool is_number = failure == std::errc() && (rest == " %" || rest.starts_with(" ("));
  return is_number ? std::string(cell.data(), end) : cell;
}

std::string escape_latex(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '\\':
        escaped += "\\textbackslash{}";
        break;
      case '~':
        escaped += "\\textasciitilde{}";
        break;
      case '<':
        escaped += "\\textless{}";
        break;
      case '>':
        escaped += "\\textgreater{}";
        break;
      case '|':
        escaped += "\\textbar{}";
        break;
      case '"':
        escaped += "''";
        break;
      case '^':
        escaped += "\\textasciicircum{}";
        break;
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}':
        escaped += fmt::format("\\{}", c);
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return escaped;
}

/// A number with its minus as one; "-" alone, for none, as a dash.
std::string latex_number(const std::string& cell) {
  if (cell == "-") {
    return "--";
  }
  std::string latex;
  for (size_t i = 0; i < cell.size(); ++i) {
    const bool is_minus = cell[i] == '-' && (i == 0 || cell[i - 1] == '(' || cell[i - 1] == ' ');
    latex += is_minus ? "$-$" : escape_latex(cell.substr(i, 1));
  }
  return latex;
}

/// First cell of a LaTeX row, in braces where it would be an option of the line break before it.
std::string latex_first(const std::string& text) {
  return text.starts_with('[') || text.starts_with('*') ? "{" + text + "}" : text;
}

/// The first `names` cells are text.
std::string latex_line(const Cells& cells, size_t names) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = i < names ? escape_latex(cells[i]) : latex_number(cells[i]);
    line += i == 0 ? latex_first(cell) : " & " + cell;
  }
  return line + " \\\\\n";
}

}  // namespace

Cells divergence_cells(const Divergence& divergence) {
  const auto gap = [](double value) {
    return !std::isnan(value) ? fmt::format("{:.3g}", value) : "-";
  };
  const auto token = [](Token value) {
    return value < 0 ? std::string("ended") : fmt::format("{}", value);
  };
  return {fmt::format("{}", divergence.position), gap(divergence.gap_first),
          gap(divergence.gap_other), token(divergence.token_first), token(divergence.token_other)};
}

std::string style_mark(size_t style) {
  constexpr std::array<const char*, 4> kShapes = {"", " round", " triangle", " lozenge"};
  return fmt::format("<span class=\"mark{}\" style=\"background:{}\"></span>",
                     kShapes[style_round(style) % kShapes.size()], style_color(style));
}

std::string table_html(const ReportTable& table) {
  std::string html =
      fmt::format("<div class=\"scroll\"><table id=\"table-{}\" class=\"sortable\">\n<thead><tr>",
                  escape_html(table.id));
  for (size_t i = 0; i < table.header.size(); ++i) {
    html += heading(table.header[i], i < table.names);
  }
  html += "</tr></thead>\n<tbody>\n";
  for (size_t row = 0; row < table.rows.size(); ++row) {
    html += "<tr>";
    for (size_t i = 0; i < table.rows[row].size(); ++i) {
      const std::string& text = table.rows[row][i];
      if (i >= table.names) {
        html += "<td>" + cell_html(text) + "</td>";
        continue;
      }
      html += "<td class=\"name\">";
      if (i + 1 == table.names && row < table.styles.size()) {
        html += style_mark(table.styles[row]);
      }
      html += escape_html(text) + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string table_csv(const ReportTable& table) {
  std::vector<bool> wide(table.header.size(), false);
  for (const Cells& row : table.rows) {
    for (size_t i = table.names; i < row.size(); ++i) {
      wide[i] = wide[i] || parse_interval(row[i]).has_value();
    }
  }
  std::string csv;
  for (size_t i = 0; i < table.header.size(); ++i) {
    const std::string& name = table.header[i];
    csv += (i == 0 ? "" : ",") + quote_csv(name);
    csv += wide[i] ? "," + quote_csv(name + " low") + "," + quote_csv(name + " high") : "";
  }
  csv += "\n";
  for (const Cells& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      csv += i == 0 ? "" : ",";
      const auto interval = i < table.names ? std::nullopt : parse_interval(row[i]);
      if (interval) {
        csv += fmt::format("{},{},{}", interval->value, interval->low, interval->high);
      } else {
        csv += quote_csv(i < table.names ? row[i] : bare_number(row[i]));
        csv += wide[i] ? ",," : "";
      }
    }
    csv += "\n";
  }
  return csv;
}

std::string table_latex(const ReportTable& table) {
  std::string columns(table.header.size(), 'r');
  std::fill_n(columns.begin(), std::min(table.names, columns.size()), 'l');
  std::string latex = fmt::format(
      "% {}\n% \\usepackage{{booktabs}}, then \\input{{{}.tex}} inside a "
      "table.\n\\begin{{tabular}}{{{}}}\n\\toprule\n{}\\midrule\n",
      one_line(table.caption, 4000), table.id, columns,
      latex_line(table.header, table.header.size()));
  for (const Cells& row : table.rows) {
    latex += latex_line(row, table.names);
  }
  return latex + "\\bottomrule\n\\end{tabular}\n";
}

std::vector<ReportTable> report_tables(const Report& report) {
  constexpr auto kAll = TableRows::kAllPrompts;
  constexpr auto kEach = TableRows::kCategories;
  std::vector<ReportTable> tables = {
      columns_table(report, ColumnTable::kResults, kAll, "results", "Results over all prompts."),
      conditions_table(report),
      columns_table(report, ColumnTable::kQuality, kAll, "quality",
                    "Quality of the texts, next to the speed-up."),
      columns_table(report, ColumnTable::kGrammar, kAll, "grammar", "Decoding under the grammar."),
      columns_table(report, ColumnTable::kResults, kEach, "categories",
                    "Results by category of prompt."),
      columns_table(report, ColumnTable::kQuality, kEach, "quality_categories",
                    "Quality of the texts by category of prompt."),
      columns_table(report, ColumnTable::kGrammar, kEach, "grammar_categories",
                    "Decoding under the grammar by category of prompt."),
      columns_table(report, ColumnTable::kMore, kAll, "more", "Further results over all prompts."),
      columns_table(report, ColumnTable::kMore, kEach, "more_categories",
                    "Further results by category of prompt."),
      positions_table(report),
      contexts_table(report),
      questions_table(report),
      divergences_table(report)};
  std::erase_if(tables, [](const ReportTable& table) { return table.rows.empty(); });
  return tables;
}

}  // namespace specdec
