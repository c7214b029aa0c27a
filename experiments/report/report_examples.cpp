#include <fmt/format.h>

#include <ostream>

#include "experiments/report/report_page.h"
#include "experiments/report/report_tables.h"
#include "experiments/report/report_text.h"
#include "experiments/report/svg_plot.h"

namespace specdec {
namespace {

/// Rejected text on one line: a line that is struck out would break the text that is there.
std::string rejected_text(const std::string& text) {
  std::string line;
  for (const char c : text) {
    line += c == '\n' ? "↵" : std::string(1, c);
  }
  return line;
}

std::string piece_html(const ExamplePiece& piece) {
  switch (piece.origin) {
    case PieceOrigin::kAccepted:
      return "<span class=\"a\">" + escape_html(piece.text) + "</span>";
    case PieceOrigin::kRejected:
      return fmt::format("<span class=\"r\" title=\"{} drafted token{} rejected\">{}</span>",
                         piece.count, piece.count == 1 ? "" : "s",
                         piece.text.empty()
                             ? fmt::format("✗{}", piece.count)
                             : "<s>" + escape_html(rejected_text(piece.text)) + "</s>");
    case PieceOrigin::kTarget:
      break;
  }
  return escape_html(piece.text);
}

std::string sample_html(const Report& report, const ExampleText& example) {
  std::string html = fmt::format(
      "<div class=\"sample\"><h3>{}{}</h3>\n<p class=\"soft\">Question {}{}; {} steps</p>\n<p "
      "class=\"piece-text\">",
      style_mark(strategy_index(report, example.strategy)),
      escape_html(arm_name(report.summary.rows, example.strategy, example.sweep_point)),
      escape_html(example.question),
      example.category.empty() ? "" : ", " + escape_html(example.category), example.steps);
  for (const ExamplePiece& piece : example.pieces) {
    html += piece_html(piece);
  }
  return html + (example.cut ? " …" : "") + "</p></div>\n";
}

}  // namespace

void write_examples(std::ostream& out, const Report& report) {
  if (report.details.examples.empty()) {
    return;
  }
  out << "<h2>Example texts</h2>\n<p><span class=\"a\">Accepted</span> tokens came from a draft; "
         "<span class=\"r\"><s>rejected</s></span> ones are shown where they were drafted; plain "
         "text "
         "is the target's own token of each step. Of a tree, up to three branches after the last "
         "accepted token are shown; <span class=\"r\">✗2</span> counts further rejected "
         "tokens.</p>\n<div class=\"samples\">\n";
  for (const ExampleText& example : report.details.examples) {
    out << sample_html(report, example);
  }
  out << "</div>\n";
}

}  // namespace specdec
