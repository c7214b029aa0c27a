#include <fmt/format.h>

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
  return test.reduced ? fmt::format("reduced to {}; its own draft, {}, has too many outcomes",
                                    size_text(test.ran), size_text(test.own))
                      : size_text(test.own) + ", its own draft";
}

std::string line_of(const ReplayTest& test) {
  if (!test.error.empty()) {
    return test.error;
  }
  if (!test.not_run.empty()) {
    return test.not_run;
  }
  return fmt::format("difference {:.1e}, {} outcomes of {} tables, {} rows{}; {}", test.difference,
                     test.outcomes, test.tables, test.rows,
                     test.own_rows ? "" : " (of all strategies and points, for want of its own)",
                     shape_text(test));
}

std::string name_of(const ReplayTest& test) {
  return test.point.empty() ? test.strategy : fmt::format("{} [{}]", test.strategy, test.point);
}

nlohmann::json to_json(const DraftSize& size) {
  return {{"nodes", size.nodes}, {"depth", size.depth}, {"branches", size.branches}};
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
                    {"largest_draft", to_json(test.ran)},
                    {"reduced", test.reduced},
                    {"not_run", test.not_run},
                    {"error", test.error}});
  }
  return list;
}

}  // namespace specdec
