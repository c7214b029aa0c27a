#include "experiments/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "experiments/report/report_text.h"
#include "experiments/report/svg_plot.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

GenerationRecord report_record(const GenerationKey& key, int64_t drafted, int64_t accepted,
                               double seconds) {
  GenerationRecord record;
  record.key = key;
  Generation& generation = record.generation;
  for (int i = 0; i < 5; ++i) {
    generation.steps.push_back({.drafted = drafted,
                                .accepted = accepted,
                                .committed = accepted + 1,
                                .depth = drafted,
                                .draft_seconds = 0.2 * seconds,
                                .verify_seconds = 0.7 * seconds});
    generation.decode_seconds += seconds;
  }
  generation.tokens.resize(static_cast<size_t>(5 * (accepted + 1) + 1));
  return record;
}

Report report_of(const std::vector<std::string>& names, const std::vector<std::string>& points) {
  Report report;
  report.name = "a <run>";
  report.environment = read_environment();
  std::vector<GenerationRecord> records;
  for (const std::string& point : points) {
    for (size_t s = 0; s < names.size(); ++s) {
      for (int prompt = 0; prompt < 12; ++prompt) {
        const auto accepted = static_cast<int64_t>(std::min<size_t>(s, 3));
        auto made = report_record({point, names[s], std::to_string(prompt), 0}, s == 0 ? 0 : 4,
                                  accepted, 1.0 + 0.01 * prompt);
        made.category = prompt % 2 == 0 ? "prose" : "json";
        records.push_back(made);
      }
    }
  }
  for (const std::string& name : names) {
    report.strategies.push_back({.name = name, .description = "of a test"});
  }
  report.summary = summarize(records);
  report.summary.compared = 12;  // as if they were greedy
  return report;
}

std::string written(void (*write)(std::ostream&, const Report&), const Report& report) {
  std::ostringstream out;
  write(out, report);
  return out.str();
}

TEST(ReportTest, TableIsAligned) {
  const std::string table = written(write_table, report_of({"plain", "speculative é"}, {""}));
  std::istringstream lines(table);
  std::string line;
  std::vector<size_t> widths;
  for (int i = 0; i < 7 && std::getline(lines, line); ++i) {
    widths.push_back(count_characters(line));
  }
  EXPECT_THAT(widths, testing::Each(widths.front())) << table;
  EXPECT_THAT(table, AllOf(HasSubstr("1 (reference)"), HasSubstr("2.00 (2.00 to 2.00)"),
                           HasSubstr("25.0 %"), HasSubstr("json")));
}

TEST(ReportTest, TableOfASweepNamesItsPoints) {
  const std::string table = written(write_table, report_of({"plain", "fast"}, {"k=1", "k=2"}));
  EXPECT_THAT(table, AllOf(HasSubstr("k=1"), HasSubstr("k=2"), Not(HasSubstr("json"))));
}

TEST(ReportTest, JsonHasCountsAndMetrics) {
  const auto json = nlohmann::json::parse(written(write_json, report_of({"plain", "fast"}, {""})));
  const auto& plain = json.at("rows").at(0);
  EXPECT_TRUE(plain.at("acceptance_rate").is_null());
  EXPECT_TRUE(plain.at("speedup").is_null());
  EXPECT_TRUE(plain.at("is_first"));
  const auto& fast = json.at("rows").at(1);
  EXPECT_EQ(fast.at("acceptance_rate"), 0.25);
  EXPECT_EQ(fast.at("tokens_per_step"), 2.0);
  EXPECT_NEAR(fast.at("speedup").get<double>(), 2.0, 1e-12);
  EXPECT_EQ(fast.at("speedup_interval_95").size(), 2);
  EXPECT_EQ(fast.at("speedup_questions"), 12);
  EXPECT_NEAR(fast.at("speedup_of_totals").get<double>(), 2.0, 1e-12);
  // 6 and 11 tokens with the prefill's, which took no time.
  EXPECT_NEAR(fast.at("end_to_end_speedup").get<double>(), 11.0 / 6.0, 1e-12);
  EXPECT_EQ(fast.at("end_to_end_speedup_interval_95").size(), 2);
  EXPECT_EQ(fast.at("tokens_per_step_interval_95").size(), 2);
  EXPECT_TRUE(fast.at("impossible_speedup").is_null());
  EXPECT_EQ(fast.at("conditional_acceptance_interval_95").at(0).size(), 2);
  EXPECT_EQ(fast.at("conditional_acceptance_questions").at(1), 12);
  EXPECT_TRUE(fast.at("conditional_acceptance_interval_95").at(3).is_null());
  EXPECT_EQ(fast.at("counts").at("drafted"), 12 * 5 * 4);
  EXPECT_EQ(fast.at("conditional_acceptance").size(), 4);
  EXPECT_TRUE(fast.at("conditional_acceptance").at(3).is_null());
  EXPECT_EQ(json.at("environment").at("gpu"), "none");
}

TEST(ReportTest, EmptyRunIsShown) {
  const Report report;
  EXPECT_THAT(written(write_html, report), HasSubstr("nothing to compare"));
  EXPECT_EQ(nlohmann::json::parse(written(write_json, report)).at("rows").size(), 0);
  EXPECT_THAT(written(write_table, report), HasSubstr("strategy"));
  EXPECT_THAT(written(write_csv, report), HasSubstr("strategy,category"));
}

TEST(ReportTest, CsvQuotesNamesAndLeavesGapsEmpty) {
  const std::string csv = written(write_csv, report_of({"plain", "a,\"b\"\nc"}, {""}));
  EXPECT_THAT(csv, AllOf(HasSubstr(",plain,,,,,"), HasSubstr(",\"a,\"\"b\"\"\nc\",,2")));
}

TEST(ReportTest, HtmlEscapesEveryName) {
  const std::string evil = "</code><script>alert('x')</script>\"\n&";
  Report report = report_of({"plain", evil}, {evil, "other"});
  report.name = report.description = report.command = report.config_yaml = evil;
  report.strategies[1].description = evil;
  report.sweep_keys = {evil};
  report.sweep_points = {{.label = evil, .values = {evil}}, {.label = "other", .values = {"2"}}};
  report.notes = {evil};
  report.environment.cpu = report.environment.dtype = evil;
  report.environment.weights[evil] = evil;
  report.summary.divergences.push_back({.key = {evil, evil, evil, 0}});
  report.summary.rows[1].category = evil;
  const std::string html = written(write_html, report);
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script>alert")), HasSubstr("&lt;script&gt;alert")));
}

TEST(ReportTest, RejectedTokensAreStruckOutOnOneLine) {
  Report report = report_of({"plain", "fast"}, {""});
  report.details.examples.push_back(
      {.sweep_point = "",
       .strategy = "fast",
       .question = "q",
       .category = "",
       .steps = 1,
       .pieces = {{.text = "a\nb", .origin = PieceOrigin::kAccepted},
                  {.text = "<c>\nd", .origin = PieceOrigin::kRejected, .count = 2},
                  {.text = "", .origin = PieceOrigin::kRejected, .count = 5}}});
  EXPECT_THAT(written(write_html, report),
              AllOf(HasSubstr("<span class=\"a\">a\nb</span>"),
                    HasSubstr("title=\"2 drafted tokens rejected\"><s>&lt;c&gt;↵d</s></span>"),
                    HasSubstr(">✗5</span>")));
}

TEST(ReportTest, QualityStatesItsMargin) {
  Report report = report_of({"plain", "fast"}, {""});
  EXPECT_THAT(written(write_html, report), Not(HasSubstr("<h2>Quality</h2>")));
  report.summary.rows[1].right_share = 0.5;
  report.summary.rows[1].quality = QualityComparison{.questions = 12, .margin = 0.025};
  EXPECT_THAT(written(write_html, report),
              AllOf(HasSubstr("<h2>Quality</h2>"),
                    HasSubstr("the non-inferiority margin, -2.5 percentage points."),
                    Not(HasSubstr("closer to the target"))));
}

TEST(ReportTest, HtmlNeedsNothingFromOutside) {
  const std::string html = written(write_html, report_of({"plain", "fast"}, {""}));
  EXPECT_THAT(
      html, AllOf(Not(HasSubstr(" src=")), Not(HasSubstr(" href=\"http")), Not(HasSubstr("fetch(")),
                  Not(HasSubstr("url(http")), Not(HasSubstr("@import")), Not(HasSubstr("<link")),
                  HasSubstr("</html>")));
}

TEST(ReportTest, EveryLinkedFileIsWritten) {
  const auto files = report_files(report_of({"plain", "fast"}, {""}));
  std::set<std::string> names;
  for (const ReportFile& file : files) {
    names.insert(file.name);
    EXPECT_FALSE(file.text.empty()) << file.name;
  }
  const std::string& html = files.front().text;
  const std::regex link("href=\"([^\"]+)\"");
  size_t links = 0;
  for (std::sregex_iterator at(html.begin(), html.end(), link), end; at != end; ++at, ++links) {
    EXPECT_TRUE(names.contains((*at)[1])) << (*at)[1];
  }
  EXPECT_EQ(links + 1, files.size());
  EXPECT_THAT(names, IsSupersetOf({"report.html", "tables/results.csv", "tables/results.tex"}));
}

TEST(ReportTest, HtmlHasItsFiguresOrSaysWhyNot) {
  Report report = report_of({"plain", "fast", "faster"}, {"k=1", "k=2", "k=4"});
  report.sweep_keys = {"draft_length"};
  report.sweep_points = {{"k=1", {"1"}}, {"k=2", {"2"}}, {"k=4", {"4"}}};
  const std::string html = written(write_html, report);
  if (!can_draw()) {
    EXPECT_THAT(html, HasSubstr("gnuplot, which draws them"));
    return;
  }
  for (const char* title :
       {"Speed-up over all prompts", "Speed-up by category of prompt", "Speed-up along the sweep",
        "Tokens per step along the sweep", "Acceptance by position in the draft", "Tokens per step",
        "Decode time per token"}) {
    EXPECT_THAT(html, HasSubstr(std::string("<title>") + title + "</title>"));
  }
}

TEST(ReportTest, DivergencesAreExplained) {
  Report report = report_of({"plain", "fast"}, {""});
  report.summary.divergences.push_back({.key = {"", "fast", "p7", 2},
                                        .position = 17,
                                        .gap_first = 1.5e-6,
                                        .gap_other = std::numeric_limits<double>::quiet_NaN(),
                                        .token_first = 5,
                                        .token_other = -1});
  EXPECT_THAT(written(write_html, report),
              AllOf(HasSubstr("p7"), HasSubstr("1.5e-06"), HasSubstr("ended")));
  EXPECT_THAT(written(write_table, report), HasSubstr("Divergence: fast: 1 generations diverge"));
  const auto json = nlohmann::json::parse(written(write_json, report));
  EXPECT_TRUE(json.at("divergences").back().at("gap_other").is_null());
  EXPECT_EQ(json.at("divergences").back().at("position"), 17);
}

TEST(ReportTest, NotesNameWhatToDistrust) {
  Report report = report_of({"plain", "fast"}, {""});
  report.strategies[1].lossy = true;
  report.strategies[1].reproducible = false;
  report.environment.commit = "abc+changes";
  report.notes = {"resumed"};
  report.summary.rows[1].speedup =
      Speedup{.ratio = 1.1, .interval = Interval{0.9, 1.3}, .questions = 3};
  report.summary.rows[1].counts.mask_fallbacks = 4;
  const auto notes = reader_notes(report);
  EXPECT_THAT(notes,
              Contains(HasSubstr(
                  "fast: 4 tokens were chosen where the grammar has no canonical tokenization")));
  EXPECT_THAT(notes, Contains(HasSubstr("fast is lossy")));
  EXPECT_THAT(notes, Contains(HasSubstr("live timing")));
  EXPECT_THAT(notes, Contains(HasSubstr("Few questions: the smallest comparison has 3")));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("interval of the speed-up contains 1"),
                                    HasSubstr(": fast."))));
  EXPECT_THAT(notes, Contains(HasSubstr("uncommitted")));
  EXPECT_EQ(notes.back(), "resumed");
}

TEST(ReportTest, FastestPointStandsForASweptStrategy) {
  Report report = report_of({"plain", "fast"}, {"k=1", "k=2"});
  report.summary.rows[3].counts.decode_seconds /= 2.0;
  const auto rows = fastest_rows(report);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(row_name(report, *rows[1]), "fast, k=2");
}

TEST(ReportTest, TextsAreWrappedAtSpaces) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrap_text("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap_text("one two three", 6), (Lines{"one", "two", "three"}));
  EXPECT_EQ(wrap_text("abcdefgh ij", 3), (Lines{"abc", "def", "gh", "ij"}));
  EXPECT_EQ(wrap_text("ééé é", 3), (Lines{"ééé", "é"}));
  EXPECT_EQ(wrap_text("", 3), Lines{""});
}

TEST(ReportTest, TextsAreMadeSafeToShow) {
  EXPECT_EQ(escape_html("a\x01\xff&<"), "a\xef\xbf\xbd\xef\xbf\xbd&amp;&lt;");
  EXPECT_EQ(one_line("a\nb\x1b[31m", 20), "a?b?[31m");
  EXPECT_EQ(one_line("abcdef", 4), "abc…");
  EXPECT_EQ(count_characters("é…x"), 3U);
  EXPECT_EQ(number_text(std::nullopt, 2), "-");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity(), 2), "-");
  EXPECT_EQ(percent_text(0.5), "50.0 %");
}

}  // namespace
}  // namespace specdec
