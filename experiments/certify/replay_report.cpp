#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "experiments/certify/certify_replay.h"

namespace specdec {
namespace {

std::string result_of(const ReplayTest& test) {
  if (test.failed()) {
    return "BROKEN";
  }
  return test.not_run.empty() ? promise_name(test.promise) : "not run";
}

std::string size_text(const DraftSize& size) {
  return size.branches == 1 ? fmt::format("a chain of {}", size.depth)
                            : fmt::format("a tree of {} nodes, {} deep, {} wide", size.nodes,
                                          size.depth, size.branches);
}

std::string shape_text(const ReplayTest& test) {
  std::vector<std::string> ran;
  for (const auto& size : test.ran) {
    ran.push_back(size_text(size));
  }
  if (test.reduced) {
    return fmt::format("reduced to {}; its own draft, {}, has too many outcomes",
                       fmt::join(ran, " and to "), size_text(test.own));
  }
  const bool whole = std::find(test.ran.begin(), test.ran.end(), test.own) != test.ran.end();
  return whole ? size_text(test.own) + ", its own draft"
               : fmt::format("{}: as much of its own draft, {}, as the rows allow",
                             fmt::join(ran, ", "), size_text(test.own));
}

std::string rows_text(const ReplayTest& test) {
  const auto own = test.own_rows ? "" : " (of all strategies and points, for want of its own)";
  return fmt::format("{} rows{} for up to {} prefixes, of which {} share", test.rows, own,
                     test.prefixes, test.sharing == 0 ? "none" : std::to_string(test.sharing));
}

std::string line_of(const ReplayTest& test) {
  if (!test.error.empty()) {
    return test.error;
  }
  if (!test.not_run.empty()) {
    return test.not_run;
  }
  return fmt::format("difference {:.1e}, {} outcomes of {} tables, {}; {}", test.difference,
                     test.outcomes, test.tables, rows_text(test), shape_text(test));
}

std::string name_of(const ReplayTest& test) {
  return test.point.empty() ? test.strategy : fmt::format("{} [{}]", test.strategy, test.point);
}

nlohmann::json to_json(const DraftSize& size) {
  return {{"nodes", size.nodes}, {"depth", size.depth}, {"branches", size.branches}};
}

nlohmann::json to_json(const std::vector<DraftSize>& sizes) {
  auto list = nlohmann::json::array();
  for (const auto& size : sizes) {
    list.push_back(to_json(size));
  }
  return list;
}

}  // namespace

void write_replay(std::ostream& out, const std::vector<ReplayTest>& tests) {
  if (tests.empty()) {
    return;
  }
  size_t width = 0;
  for (const auto& test : tests) {
    width = std::max(width, name_of(test).size());
  }
  for (const auto& test : tests) {
    out << fmt::format("replay  {:<{}}  {:<10}  {}\n", name_of(test), width, result_of(test),
                       line_of(test));
  }
  out << (passed(tests) ? "Replay found no difference."
                        : "Replay: a strategy's distribution is not the target's.")
      << "\nIt enumerates the random choices of verifiers and shapes on recorded distributions. It "
         "does not\nsee the drafter's own bookkeeping, state kept between steps and requests, nor "
         "forwards whose\nlogits are wrong: the tests on samples may.\n\n"
      << std::flush;
}

nlohmann::json replay_json(const std::vector<ReplayTest>& tests) {
  auto list = nlohmann::json::array();
  for (const auto& test : tests) {
    list.push_back({{"strategy", test.strategy},
                    {"sweep_point", test.point},
                    {"result", result_of(test)},
                    {"difference", test.difference},
                    {"rows", test.rows},
                    {"own_rows", test.own_rows},
                    {"tables", test.tables},
                    {"outcomes", test.outcomes},
                    {"own_draft", to_json(test.own)},
                    {"prefixes", test.prefixes},
                    {"prefixes_sharing", test.sharing},
                    {"largest_drafts", to_json(test.ran)},
                    {"reduced", test.reduced},
                    {"not_run", test.not_run},
                    {"error", test.error}});
  }
  return list;
}

}  // namespace specdec
