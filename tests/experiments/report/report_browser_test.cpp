// The page in a real browser: Debian's chromium, headless. Skipped where that is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/report/report.h"
#include "experiments/report/svg_plot.h"
#include "tests/experiments/report/report_sample.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

/// Opens everything, looks for what is cut off, and sorts a table by clicking.
constexpr const char* kProbe = R"(<script>
const isScrolled = (element) => element.closest('.scroll, pre, svg') !== null;
const column = (index) => [...document.querySelectorAll('#table-results tbody tr')]
  .map((row) => row.cells[index].textContent.trim());
window.addEventListener('load', () => {
  document.querySelectorAll('details').forEach((each) => { each.open = true; });
  const all = [...document.body.querySelectorAll('*')];
  const cells = [...document.querySelectorAll('td, th')];
  const headings = [...document.querySelectorAll('#table-results th')];
  const steps = headings.findIndex((each) => each.textContent === 'tokens/step');
  const result = {
    width: window.innerWidth,
    page: document.documentElement.scrollWidth,
    outside: all.filter((each) => !isScrolled(each) &&
      each.getBoundingClientRect().right > window.innerWidth + 1).map((each) => each.outerHTML.slice(0, 80)),
    cut: cells.filter((each) => each.scrollWidth > each.clientWidth + 1).length,
    wide: [...document.querySelectorAll('.scroll')].filter((each) =>
      each.getBoundingClientRect().right > window.innerWidth).length,
    scrolled: [...document.querySelectorAll('.scroll')].filter((box) =>
      box.scrollWidth > box.clientWidth + 1).map((box) => box.querySelector('table').id),
    columns: new Set([...document.querySelectorAll('.figures figure')].map((each) =>
      Math.round(each.getBoundingClientRect().left))).size,
  };
  result.before = column(steps);
  headings[steps].click();
  result.down = column(steps);
  headings[steps].click();
  result.up = column(steps);
  headings[0].click();
  result.names = column(0);
  const probe = document.createElement('pre');
  probe.id = 'probe';
  probe.textContent = JSON.stringify(result);
  document.body.append(probe);
});
</script></body>)";

bool has_chromium() { return std::system("command -v chromium > /dev/null 2>&1") == 0; }

std::string output_of(const std::string& command) {
  std::string text;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  char block[4096];
  for (size_t bytes = 1; pipe != nullptr && bytes > 0;) {
    bytes = std::fread(block, 1, sizeof block, pipe.get());
    text.append(block, bytes);
  }
  return text;
}

/// What the probe found at this width of the window.
nlohmann::json probe_page(const TemporaryFolder& folder, const Report& report, int width) {
  std::ostringstream page;
  write_html(page, report);
  std::string html = page.str();
  html.replace(html.rfind("</body>"), 7, kProbe);
  const auto file = folder.write("report.html", html);
  const std::string dom = output_of(
      "timeout 100 chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars "
      "--user-data-dir='" +
      (folder.path() / "profile").string() + "' --window-size=" + std::to_string(width) +
      ",1000 --dump-dom 'file://" + file.string() + "' 2> /dev/null");
  const std::string begin = "<pre id=\"probe\">";
  const size_t at = dom.rfind(begin);
  if (at == std::string::npos) {
    return {};
  }
  std::string json = dom.substr(at + begin.size());
  json = json.substr(0, json.find("</pre>"));
  for (const auto& [entity, plain] :
       {std::pair{"&lt;", "<"}, std::pair{"&gt;", ">"}, std::pair{"&amp;", "&"}}) {
    for (size_t place = json.find(entity); place != std::string::npos; place = json.find(entity)) {
      json.replace(place, std::string(entity).size(), plain);
    }
  }
  return nlohmann::json::parse(json);
}

/// Long names without a space, many rows, a long command.
Report wide_report() {
  ReportSample sample;
  sample.strategies = {"plain", "a_draft_model_with_quite_a_long_name_that_has_no_space_at_all",
                       "b", "c"};
  sample.sweep_keys = {"strategies.draft_model.draft_length", "sampling.temperature"};
  for (const char* length : {"1", "2", "4"}) {
    for (const char* temperature : {"0", "1"}) {
      sample.points.push_back(
          {"draft_length=" + std::string(length) + ", temperature=" + temperature,
           {length, temperature}});
    }
  }
  sample.lossy = true;
  Report report = sample_report(sample);
  report.command = "specdec run " + std::string(400, 'x');
  report.notes = {std::string(300, 'y')};
  return report;
}

class ReportBrowserTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!has_chromium()) {
      GTEST_SKIP() << "chromium is not installed (Debian: apt-get install chromium)";
    }
  }
};

TEST_P(ReportBrowserTest, NothingIsClippedAndTablesSort) {
  const TemporaryFolder folder;
  const auto seen = probe_page(folder, wide_report(), GetParam());
  ASSERT_TRUE(seen.is_object()) << "the browser gave no page";
  EXPECT_EQ(seen.at("width"), GetParam());
  EXPECT_LE(seen.at("page"), GetParam());
  EXPECT_EQ(seen.at("outside").dump(), "[]");
  EXPECT_EQ(seen.at("cut"), 0);
  EXPECT_EQ(seen.at("wide"), 0);
  if (can_draw()) {
    EXPECT_EQ(seen.at("columns"), GetParam() < 1500 ? 2 : 3);
  }
  const auto numbers = [&](const char* key) {
    std::vector<double> values;
    for (const auto& text : seen.at(key)) {
      values.push_back(std::stod(text.get<std::string>()));
    }
    return values;
  };
  auto up = numbers("before");
  std::sort(up.begin(), up.end());
  EXPECT_NE(numbers("before"), up);
  EXPECT_EQ(numbers("up"), up);
  EXPECT_EQ(numbers("down"), std::vector<double>(up.rbegin(), up.rend()));
  auto names = seen.at("names").get<std::vector<std::string>>();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST_P(ReportBrowserTest, TablesOfAnOrdinaryRunNeedNoScrolling) {
  const TemporaryFolder folder;
  ReportSample sample;
  sample.strategies = {"autoregressive", "rejection", "sample_match", "threshold_lossy"};
  sample.lossy = true;
  Report report = sample_report(sample);
  report.summary.rows[0].counts.masked_tokens = 1;  // as under a grammar
  const auto seen = probe_page(folder, report, GetParam());
  ASSERT_TRUE(seen.is_object()) << "the browser gave no page";
  EXPECT_EQ(seen.at("scrolled").dump(), "[]");
}

INSTANTIATE_TEST_SUITE_P(Widths, ReportBrowserTest, testing::Values(1200, 1600));

}  // namespace
}  // namespace specdec
