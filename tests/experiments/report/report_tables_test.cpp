#include "experiments/report/report_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "experiments/report/acceptance_tables.h"
#include "experiments/report/report_text.h"
#include "tests/experiments/report/report_sample.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ReportTable small_table() {
  return {.id = "small",
          .caption = "What it is.",
          .header = {"name", "speed-up", "share", "split"},
          .rows = {{"a_b, \"c\"", "1.83 (1.71 to 1.95)", "62.1 %", "1 / 97 / 2 %"},
                   {"plain", "1 (reference)", "-", "-"}},
          .styles = {0, 1}};
}

TEST(ReportTablesTest, CsvSplitsIntervalsAndDropsUnits) {
  EXPECT_EQ(table_csv(small_table()),
            "name,speed-up,speed-up low,speed-up high,share,split\n"
            "\"a_b, \"\"c\"\"\",1.83,1.71,1.95,62.1,1 / 97 / 2 %\n"
            "plain,1,,,,\n");
}

TEST(ReportTablesTest, LatexIsBooktabsAndEscaped) {
  EXPECT_EQ(table_latex(small_table()),
            "% What it is.\n"
            "% \\usepackage{booktabs}, then \\input{small.tex} inside a table.\n"
            "\\begin{tabular}{lrrr}\n\\toprule\n"
            "name & speed-up & share & split \\\\\n\\midrule\n"
            "a\\_b, ''c'' & 1.83 (1.71 to 1.95) & 62.1 \\% & 1 / 97 / 2 \\% \\\\\n"
            "plain & 1 (reference) & -- & -- \\\\\n"
            "\\bottomrule\n\\end{tabular}\n");
}

TEST(ReportTablesTest, LatexRunsNoCommandOfAName) {
  ReportTable table = small_table();
  table.rows[0][0] = "\\input{x}$^~#&\n%";
  EXPECT_THAT(table_latex(table),
              HasSubstr("\\textbackslash{}input\\{x\\}\\$\\textasciicircum{}\\textasciitilde{}"
                        "\\#\\& \\% & 1.83"));
}

TEST(ReportTablesTest, LatexOfAnyCellCompiles) {
  ReportTable table = small_table();
  table.rows = {{"[x] <y> | z", "-0.25 (-0.50 to +0.10)", "-", "a-b"}, {"*", "1e-05", "-", "-"}};
  EXPECT_THAT(
      table_latex(table),
      AllOf(HasSubstr("\n{[x] \\textless{}y\\textgreater{} \\textbar{} z} & $-$0.25 ($-$0.50 "
                      "to +0.10) & -- & a-b \\\\\n"),
            HasSubstr("\n{*} & 1e-05 & --")));
}

TEST(ReportTablesTest, HtmlMarksRowsWithTheColourOfTheFigures) {
  const std::string html = table_html(small_table());
  EXPECT_THAT(html, AllOf(HasSubstr("id=\"table-small\""), HasSubstr("background:#7A7A7A"),
                          HasSubstr("background:#0072B2"), HasSubstr("a_b, &quot;c&quot;")));
}

TEST(ReportTablesTest, QualityHasATableOfItsOwn) {
  const auto tables = report_tables(
      sample_report({.strategies = {"plain", "exact", "loose"}, .questions = 12, .lossy = true}));
  const auto table = [&](const std::string& id) {
    return *std::find_if(tables.begin(), tables.end(),
                         [&](const ReportTable& each) { return each.id == id; });
  };
  EXPECT_THAT(table("results").header, testing::Not(testing::Contains("correct")));
  EXPECT_EQ(table("quality").header,
            (Cells{"strategy", "speed-up", "questions", "correct", "correct, difference (points)",
                   "log p/token", "log p/token, difference", "TV at least"}));
  ASSERT_EQ(table("quality").rows.size(), 2U) << "nothing of the other strategy was measured";
  EXPECT_EQ(table("quality").rows[0],
            (Cells{"plain", "1 (reference)", "12", "66.7 %", "-", "-2.000", "-", "-"}));
  EXPECT_EQ(table("quality").rows[1][5], "-1.750");
  EXPECT_EQ(table("quality").rows[1][7], "0.172");
}

TEST(ReportTablesTest, QualityOfArmsStandsBesideThePlainArm) {
  Report report = sample_report({.lossy = true});
  for (SummaryRow& row : report.summary.rows) {
    row.valid_share = 0.75;
  }
  report.summary.rows[1].plain =
      PlainComparison{.speedup = Speedup{.ratio = 1.5},
                      .right = QualityComparison{.first_share = 0.5, .share = 0.25},
                      .valid = QualityComparison{
                          .first_share = 1.0, .share = 0.75, .interval = Interval{-0.4, -0.1}}};
  const auto tables = report_tables(report);
  const auto table = *std::find_if(tables.begin(), tables.end(),
                                   [](const ReportTable& each) { return each.id == "quality"; });
  const auto cell = [&](size_t row, const std::string& title) {
    const auto found = std::find(table.header.begin(), table.header.end(), title);
    return found == table.header.end()
               ? "no column"
               : table.rows[row][static_cast<size_t>(found - table.header.begin())];
  };
  EXPECT_EQ(cell(0, "valid"), "75.0 %");
  EXPECT_EQ(cell(0, "speed-up, plain arm"), "1 (plain)");
  EXPECT_EQ(cell(1, "speed-up, plain arm"), "1.50");
  EXPECT_EQ(cell(1, "correct, plain arm (points)"), "-25.0");
  EXPECT_EQ(cell(1, "valid, plain arm (points)"), "-25.0 (-40.0 to -10.0)");
  std::ostringstream csv;
  write_csv(csv, report);
  EXPECT_THAT(csv.str(), HasSubstr(",1.5,,,-0.25,,,-0.25,-0.4,-0.1\n"));
}

TEST(ReportTablesTest, TiersOfACacheHaveFurtherColumns) {
  Report report = sample_report({});
  const auto cells = [&] {
    std::vector<std::string> texts;
    for (const ReportColumn& column : report_columns(report)) {
      if (column.title.rfind("cache ", 0) == 0) {
        texts.push_back(column.cell(report.summary.rows[0]));
        EXPECT_EQ(column.table, ColumnTable::kMore);
      }
    }
    return texts;
  };
  EXPECT_EQ(cells(), Cells());
  report.summary.rows[0].cache_tiers = KvTiers{.memory_bytes = 11,
                                               .disk_bytes = 12,
                                               .promotions = 3,
                                               .demotions = 5,
                                               .read_bytes = 1'500'000,
                                               .written_bytes = 2'000'000,
                                               .wait_seconds = 0.25};
  EXPECT_EQ(cells(), (Cells{"3 / 5", "1.5 / 2.0", "0.25"}));
  std::ostringstream csv;
  write_csv(csv, report);
  EXPECT_THAT(csv.str(),
              AllOf(HasSubstr(",cache_memory_bytes,cache_peak_memory_bytes,cache_host_bytes,"
                              "cache_disk_bytes,cache_accesses,cache_promotions,"
                              "cache_demotions,cache_read_bytes,cache_written_bytes,"
                              "cache_wait_seconds,"),
                    HasSubstr(",11,0,0,12,0,3,5,1500000,2000000,0.25,")));
}

TEST(ReportTablesTest, CategoriesHaveTheSameColumnsInTablesAsNarrow) {
  Report report = sample_report({.lossy = true});
  report.summary.rows[0].counts.grammar_outputs = 1;
  const auto tables = report_tables(report);
  const auto header = [&](const std::string& id) {
    const auto found = std::find_if(tables.begin(), tables.end(),
                                    [&](const ReportTable& each) { return each.id == id; });
    return found == tables.end() ? Cells() : found->header;
  };
  size_t columns = 0;
  for (const auto& [all, each] : {std::pair{"results", "categories"},
                                  {"quality", "quality_categories"},
                                  {"grammar", "grammar_categories"},
                                  {"more", "more_categories"}}) {
    Cells expected = header(all);
    columns += expected.size() - 1;
    expected.insert(expected.begin(), "category");
    EXPECT_EQ(header(each), expected);
  }
  EXPECT_EQ(columns, report_columns(report).size() + 1 + 3)
      << "the speed-up stands beside quality too, the questions in all tables";
}

TEST(ReportTablesTest, MarksOfOneColourDifferInShape) {
  EXPECT_EQ(style_mark(1), "<span class=\"mark\" style=\"background:#0072B2\"></span>");
  EXPECT_EQ(style_mark(9), "<span class=\"mark round\" style=\"background:#0072B2\"></span>");
}

TEST(ReportTablesTest, StrategiesThatASweepDoesNotTouchHaveNoPoint) {
  Report report = sample_report({.strategies = {"plain", "draft_model"},
                                 .points = {{"k=1", {"1"}}, {"k=2", {"2"}}},
                                 .sweep_keys = {"k"}});
  auto& rows = report.summary.rows;
  std::erase_if(rows, [](const SummaryRow& row) {
    return row.strategy == "plain" && row.sweep_point == "k=2";
  });
  std::set<std::string> names;
  const auto tables = report_tables(report);
  for (const Cells& row : tables.front().rows) {
    names.insert(row[1] + " at " + row[0]);
  }
  EXPECT_EQ(tables.front().header[0], "k") << "the sweep's keys have columns of their own";
  EXPECT_THAT(names, testing::ElementsAre("draft_model at 1", "draft_model at 2", "plain at -"));
  std::ostringstream out;
  write_table(out, report);
  EXPECT_THAT(out.str(), testing::ContainsRegex("plain +- "));
}

/// The first strategy drafts nothing; the other's steps all stand in short contexts.
TEST(ReportTablesTest, StepsAreGroupedByPhaseAndContext) {
  Report report = sample_report({});
  const size_t columns = report_columns(report).size();
  StepGroups& groups = report.summary.rows[1].groups;
  EXPECT_TRUE(contexts_table(report).rows.empty()) << "one bucket says nothing";
  groups.by_context[512] = {.steps = 10, .drafted = 40, .accepted = 10, .committed = 20};
  const ReportTable contexts = contexts_table(report);
  ASSERT_EQ(contexts.rows.size(), 2);
  EXPECT_EQ(contexts.rows[0][1], "0 to 255");
  EXPECT_THAT(contexts.rows[0][5], testing::StartsWith("25.0 % ("));
  EXPECT_EQ(contexts.rows[1],
            (Cells{"draft_model", "512 to 1023", "10", "40", "10", "25.0 %", "0", "2.00"}));
  EXPECT_THAT(table_csv(contexts), HasSubstr("acceptance,acceptance low,acceptance high"));

  groups.by_phase[0] = {.steps = 4, .drafted = 16, .accepted = 12, .committed = 16};
  const auto with_phases = report_columns(report);
  EXPECT_EQ(with_phases.size(), columns + 2);
  const auto column = std::find_if(
      with_phases.begin(), with_phases.end(),
      [](const ReportColumn& each) { return each.title == "acceptance, thinking / answer"; });
  ASSERT_NE(column, with_phases.end());
  EXPECT_EQ(column->cell(report.summary.rows[1]), "75.0 % / 25.0 %");
  EXPECT_EQ(column->cell(report.summary.rows[0]), "- / -");
  std::ostringstream csv;
  write_csv(csv, report);
  EXPECT_THAT(csv.str(), AllOf(HasSubstr("acceptance_rate_thinking,acceptance_rate_answer,"),
                               HasSubstr(",0.75,0.25,4,2,")));
}

TEST(ReportTablesTest, TreesHaveLowerBoundsByPosition) {
  Report report = sample_report({.strategies = {"plain", "chain", "tree"}});
  EXPECT_EQ(tree_sentence(report), "");
  report.summary.rows[2].counts.drafted += 8;  // siblings, which add no level
  EXPECT_THAT(positions_table(report).caption,
              testing::HasSubstr("Lower bounds for tree: trees, "));
}

TEST(ReportTablesTest, OnlyTablesWithRowsAreThere) {
  const auto tables = report_tables(sample_report({}));
  std::vector<std::string> ids;
  for (const ReportTable& table : tables) {
    ids.push_back(table.id);
    for (const Cells& row : table.rows) {
      EXPECT_EQ(row.size(), table.header.size()) << table.id;
    }
  }
  EXPECT_THAT(ids, testing::ElementsAre("results", "categories", "more", "more_categories",
                                        "positions", "questions"));
  EXPECT_TRUE(report_tables(Report()).empty());
}

}  // namespace
}  // namespace specdec
