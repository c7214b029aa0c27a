#include "experiments/report/report_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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
            "a\\_b, \"c\" & 1.83 (1.71 to 1.95) & 62.1 \\% & 1 / 97 / 2 \\% \\\\\n"
            "plain & 1 (reference) & - & - \\\\\n"
            "\\bottomrule\n\\end{tabular}\n");
}

TEST(ReportTablesTest, LatexRunsNoCommandOfAName) {
  ReportTable table = small_table();
  table.rows[0][0] = "\\input{x}$^~#&\n%";
  EXPECT_THAT(table_latex(table),
              HasSubstr("\\textbackslash{}input\\{x\\}\\$\\textasciicircum{}\\textasciitilde{}"
                        "\\#\\& \\% & 1.83"));
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
  EXPECT_THAT(table("results").header, testing::Not(testing::Contains("right")));
  EXPECT_EQ(table("quality").header,
            (Cells{"strategy", "speed-up", "right", "right, difference (points)", "log p/token",
                   "log p/token, difference", "TV at least"}));
  ASSERT_EQ(table("quality").rows.size(), 2U) << "nothing of the other strategy was measured";
  EXPECT_EQ(table("quality").rows[0],
            (Cells{"plain", "1 (reference)", "66.7 %", "-", "-2.000", "-", "-"}));
  EXPECT_EQ(table("quality").rows[1][4], "-1.750");
  EXPECT_EQ(table("quality").rows[1][6], "0.172");
}

TEST(ReportTablesTest, EveryColumnIsInOneTableAndInThatOfCategories) {
  Report report = sample_report({.lossy = true});
  report.summary.rows[0].counts.masked_tokens = 1;  // as under a grammar
  Cells in_tables;
  Cells categories;
  for (const ReportTable& table : report_tables(report)) {
    if (table.id == "categories") {
      categories.assign(table.header.begin() + 2, table.header.end());
    } else if (table.header[0] == "strategy" && table.id != "positions") {
      in_tables.insert(in_tables.end(), table.header.begin() + (table.id == "quality" ? 2 : 1),
                       table.header.end());
    }
  }
  EXPECT_THAT(in_tables, testing::UnorderedElementsAreArray(categories));
  EXPECT_GE(categories.size(), 20U);
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
  EXPECT_THAT(ids, testing::ElementsAre("results", "categories", "more", "positions", "questions"));
  EXPECT_TRUE(report_tables(Report()).empty());
}

}  // namespace
}  // namespace specdec
