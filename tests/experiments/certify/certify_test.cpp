#include "experiments/certify/certify.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "decoders/drafters/prompt_lookup.h"
#include "experiments/certify/certify_report.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/error_message.h"
#include "tests/support/planted_verifier.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

CertifyResult run(const Components& components, std::vector<std::string> names, int64_t seeds = 1) {
  std::ostringstream log;
  return certify(components, {.names = std::move(names), .seeds = seeds, .quiet = true}, log);
}

// ---- What comes with specdec ----

TEST(CertifyTest, EverythingRegisteredKeepsItsPromise) {
  const auto result = run(builtin_components(), {}, 1);
  for (const auto& row : result.rows) {
    EXPECT_NE(row.finding, Finding::kBroken) << row.cell.yaml << ": " << row.reason;
    if (row.finding == Finding::kRefused) {
      EXPECT_NE(row.reason, "") << row.cell.yaml;
    } else {
      EXPECT_GT(row.outcomes, 0) << row.cell.yaml;
    }
  }
  EXPECT_THAT(result.untested, testing::IsEmpty());
  EXPECT_TRUE(result.passed());
}

TEST(CertifyTest, EveryRegisteredNameHasARow) {
  const auto components = builtin_components();
  std::set<std::string> seen;
  for (const auto& cell : certify_cells(components)) {
    for (const auto& type : cell.types()) {
      seen.insert(type);
    }
  }
  const auto names = component_names(components);
  EXPECT_EQ(seen, std::set<std::string>(names.begin(), names.end()));
}

TEST(CertifyTest, SampledRowsDraftAndReject) {
  const auto result = run(builtin_components(), {"draft_model"});
  for (const auto& row : result.rows) {
    if (!row.greedy && row.finding == Finding::kLossless) {
      EXPECT_GT(row.accepted, 0) << row.cell.yaml;
      EXPECT_LT(row.accepted, row.drafted) << row.cell.yaml;
      EXPECT_GT(row.outcomes, 10) << row.cell.yaml;
    }
  }
}

TEST(CertifyTest, RefusalsSayWhy) {
  const auto result = run(builtin_components(), {"exact_match"});
  for (const auto& row : result.rows) {
    if (!row.greedy) {
      EXPECT_EQ(row.finding, Finding::kRefused);
      EXPECT_THAT(row.reason, HasSubstr("exact_match compares with greedy decoding"));
    }
  }
}

// ---- Plug-ins with planted bugs ----

/// A drafter on the distributions of the tiny draft model.
template <class Made>
DrafterRegistry::Entry on_draft_model() {
  return {.help = "planted",
          .promise = Promise::kLossless,
          .prepare =
              [](const ConfigNode& node, const RunPlan&) {
                const auto weights = node.require_path("weights");
                return [weights](BuildContext& context) {
                  const std::shared_ptr<TransformerModel> model = context.models.load(weights);
                  return std::make_unique<Made>([model](TokenSpan history) {
                    const Tensor logits = model->prefill_get_last_logits(history).contiguous();
                    const auto* values = logits.const_data_ptr<double>();
                    return std::vector<double>(values, values + logits.numel());
                  });
                };
              },
          .examples = {{"{type: planted, weights: <folder>/draft}"}}};
}

/// A few of the built-in ones: what is planted shows beside these, and all would take long.
Components few_components() {
  const auto all = builtin_components();
  Components few;
  few.strategies = all.strategies;
  few.caches = all.caches;
  for (const char* name : {"draft_model", "prompt_lookup"}) {
    few.drafters.add(name, all.drafters.entries().at(name));
  }
  for (const char* name : {"exact_match", "rejection"}) {
    few.verifiers.add(name, all.verifiers.entries().at(name));
  }
  few.draft_lengths.add("fixed", all.draft_lengths.entries().at("fixed"));
  few.trees.add("static", all.trees.entries().at("static"));
  return few;
}

/// The target's own drafts would all be accepted, had their cache lost nothing.
TEST(CertifyTest, DraftsOverAPooledCacheAreNotTheTargets) {
  const auto all = builtin_components();
  Components components;
  components.caches = all.caches;
  components.strategies.add("speculative", all.strategies.entries().at("speculative"));
  components.verifiers.add("rejection", all.verifiers.entries().at("rejection"));
  components.draft_lengths = few_components().draft_lengths;
  components.trees = few_components().trees;
  auto self = all.drafters.entries().at("self");
  std::erase_if(self.examples, [](const Example& example) {
    return example.yaml.find("type: compressed") == std::string::npos;
  });
  components.drafters.add("self", self);
  const auto result = run(components, {});
  int64_t sampled = 0;
  for (const auto& row : result.rows) {
    EXPECT_EQ(row.finding, Finding::kLossless) << row.cell.yaml << ": " << row.reason;
    if (!row.greedy) {
      EXPECT_GT(row.accepted, 0) << row.cell.yaml;
      EXPECT_LT(row.accepted, row.drafted) << row.cell.yaml;
      ++sampled;
    }
  }
  EXPECT_GE(sampled, 2) << "chains and trees";
}

/// Adds a tree that draws: what some bugs need to show.
Components with_drawn_tree() {
  auto components = few_components();
  auto entry = on_draft_model<TreeDrafter>();
  entry.examples = {{"{type: drawn_tree, weights: <folder>/draft}"}};
  components.drafters.add("drawn_tree", entry);
  return components;
}

Components with_verifier(Bug bug, Promise promise = Promise::kLossless) {
  auto components = with_drawn_tree();
  components.verifiers.add("planted", planted_verifier(bug, promise));
  return components;
}

template <class Made>
Components with_drafter() {
  auto components = few_components();
  components.drafters.add("planted", on_draft_model<Made>());
  return components;
}

int64_t broken_sampled(const CertifyResult& result) {
  return std::count_if(result.rows.begin(), result.rows.end(), [](const CertifyRow& row) {
    return !row.greedy && row.finding == Finding::kBroken;
  });
}

TEST(CertifyPluginTest, AVerifierWithoutABugPasses) {
  const auto result = run(with_verifier(Bug::kNone), {"planted"});
  EXPECT_TRUE(result.passed());
  EXPECT_GT(result.count(Finding::kLossless), 10);
}

TEST(CertifyPluginTest, ADrafterWithoutABugPasses) {
  EXPECT_TRUE(run(with_drafter<TreeDrafter>(), {"planted"}).passed());
}

TEST(CertifyPluginTest, BuggyVerifiersAreFlagged) {
  for (const Bug bug : {Bug::kUniformQ, Bug::kResidualFromTarget, Bug::kResidualNotNormalised,
                        Bug::kSiblingsIndependent, Bug::kAlwaysAccepts, Bug::kTypicalAcceptance,
                        Bug::kFirstUnchecked}) {
    const auto result = run(with_verifier(bug), {"planted"});
    EXPECT_FALSE(result.passed()) << static_cast<int>(bug);
    EXPECT_GT(broken_sampled(result), 0) << static_cast<int>(bug);
    for (const auto& row : result.rows) {
      if (row.finding == Finding::kBroken) {
        EXPECT_GT(row.difference, 1e-6) << row.cell.yaml;
        EXPECT_THAT(row.reason, HasSubstr("and should have")) << row.cell.yaml;
      }
    }
  }
}

TEST(CertifyPluginTest, ASharedRandomNumberIsFlagged) {
  const auto result = run(with_verifier(Bug::kSharedRandomNumber), {"planted"});
  EXPECT_FALSE(result.passed());
  EXPECT_GT(broken_sampled(result), 0);
  for (const auto& row : result.rows) {
    if (row.finding == Finding::kBroken) {
      EXPECT_THAT(row.reason, HasSubstr("is drawn twice")) << row.cell.yaml;
    }
  }
}

TEST(CertifyPluginTest, BuggyDraftersAreFlagged) {
  EXPECT_GT(broken_sampled(run(with_drafter<WrongDistributionDrafter>(), {"planted"})), 0);
  EXPECT_GT(broken_sampled(run(with_drafter<DroppingDrafter>(), {"planted"})), 0);
  EXPECT_GT(broken_sampled(run(with_drafter<RerankingDrafter>(), {"planted"})), 0);
}

TEST(CertifyPluginTest, WhatIsDeclaredLossyPassesWithItsDifference) {
  const auto result = run(with_verifier(Bug::kTypicalAcceptance, Promise::kLossy), {"planted"});
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.count(Finding::kLossless), 0);
  EXPECT_GT(result.count(Finding::kLossy), 10);
  EXPECT_TRUE(std::any_of(result.rows.begin(), result.rows.end(),
                          [](const CertifyRow& row) { return row.difference > 1e-3; }));
}

// ---- A promise has no default ----

static_assert(!std::is_default_constructible_v<VerifierRegistry::Entry>,
              "an entry that does not state its promise must not compile");

TEST(CertifyPluginTest, WhatIsUnverifiedIsMeasured) {
  const auto lossy = run(with_verifier(Bug::kTypicalAcceptance, Promise::kUnverified), {"planted"});
  EXPECT_TRUE(lossy.passed());
  EXPECT_GT(lossy.count(Finding::kUnverified), 10);
  EXPECT_TRUE(std::any_of(lossy.rows.begin(), lossy.rows.end(), [](const CertifyRow& row) {
    return row.reason.find("promises nothing, and is lossy: the output") != std::string::npos;
  }));
  const auto lossless = run(with_verifier(Bug::kNone, Promise::kUnverified), {"planted"});
  EXPECT_TRUE(lossless.passed());
  EXPECT_EQ(lossless.count(Finding::kLossless), 0);
  for (const auto& row : lossless.rows) {
    if (row.finding == Finding::kUnverified) {
      EXPECT_THAT(row.reason, HasSubstr("may promise to be lossless"));
    }
  }
}

TEST(PromiseTest, TheWholePromisesTheWeakestOfItsParts) {
  const auto order = {Promise::kLossless, Promise::kUnverified, Promise::kLossy, Promise::kSearch};
  for (const Promise a : order) {
    for (const Promise b : order) {
      CertifyCell cell;
      cell.drafter.promise = a;
      cell.verifier.promise = b;
      EXPECT_EQ(cell.promise(), a < b ? b : a);
    }
  }
  EXPECT_EQ(promise_name(Promise::kUnverified), "unverified");
}

TEST(PromiseTest, OnlyWhatComesWithSpecdecIsCertified) {
  const auto components = with_verifier(Bug::kNone);
  EXPECT_FALSE(components.verifiers.entries().at("planted").certified);
  EXPECT_TRUE(components.verifiers.entries().at("rejection").certified);
}

// ---- A proof about nothing is none ----

TEST(CertifyPluginTest, AComponentThatCannotBeBuiltIsUntested) {
  auto components = few_components();
  auto entry = on_draft_model<TreeDrafter>();
  entry.examples.clear();  // {type: planted} lacks the key `weights`
  components.drafters.add("planted", entry);
  const auto result = run(components, {"planted"});
  EXPECT_EQ(result.count(Finding::kRefused), static_cast<int64_t>(result.rows.size()));
  EXPECT_FALSE(result.passed());
  EXPECT_THAT(result.untested, Contains(AllOf(HasSubstr("planted: refused everywhere"),
                                              HasSubstr("the key 'weights' is missing"))));
}

TEST(CertifyPluginTest, ADrafterThatNeverDraftsIsUntested) {
  auto components = few_components();
  components.drafters.add("planted", {.help = "says nothing",
                                      .promise = Promise::kLossless,
                                      .prepare = [](const ConfigNode&, const RunPlan&) {
                                        return [](BuildContext&) {
                                          return std::make_unique<ScriptedDrafter>(
                                              [](TokenSpan) { return std::vector<Token>(); });
                                        };
                                      }});
  const auto result = run(components, {"planted"});
  EXPECT_FALSE(result.passed());
  EXPECT_THAT(result.untested, Contains(HasSubstr("never drafted a token")));
}

TEST(CertifyPluginTest, OnlyAConfigErrorIsARefusal) {
  auto components = few_components();
  components.drafters.add(
      "planted",
      {.help = "", .promise = Promise::kLossless, .prepare = [](const ConfigNode&, const RunPlan&) {
         return [](BuildContext&) -> std::unique_ptr<Drafter> {
           throw WeightsError("the head is damaged");
         };
       }});
  const auto result = run(components, {"planted"});
  EXPECT_GT(result.count(Finding::kBroken), 0);
  EXPECT_FALSE(result.passed());
  EXPECT_THAT(result.rows.front().reason, HasSubstr("the head is damaged"));
}

TEST(CertifyPluginTest, TooManyOutcomesAreNoProof) {
  std::ostringstream log;
  const auto result =
      certify(builtin_components(),
              {.names = {"autoregressive"}, .seeds = 1, .most_outcomes = 5, .quiet = true}, log);
  EXPECT_EQ(result.count(Finding::kBroken), 1);
  EXPECT_THAT(result.rows.back().reason, HasSubstr("more than 5 outcomes"));
}

TEST(CertifyPluginTest, WritesTheFilesOfItsExamples) {
  auto components = few_components();
  auto entry = on_draft_model<TreeDrafter>();
  entry.examples = {{"{type: planted, weights: <folder>/head}"}};
  entry.write_example_files = [](const std::filesystem::path& folder, uint64_t) {
    std::filesystem::copy(folder / "draft", folder / "head");
  };
  components.drafters.add("planted", entry);
  EXPECT_TRUE(run(components, {"planted"}).passed());
}

TEST(CertifyPluginTest, AStrategyMayPromiseToEqualAnother) {
  auto components = few_components();
  auto plain = components.strategies.entries().at("autoregressive");
  plain.promise = Promise::kSearch;
  plain.examples = {{.yaml = "{type: planted}", .equals = "{type: autoregressive}"}};
  components.strategies.add("planted", plain);
  const auto result = run(components, {"planted"});
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.count(Finding::kSearch), 2);
}

// ---- The command line ----

TEST(CertifyCliTest, ExitsWithOneWhenAPromiseIsBroken) {
  const auto good = cli({"certify", "autoregressive", "--quiet"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("PASSED: 2 combinations"));
  const auto bad = cli({"certify", "planted", "--quiet"}, with_verifier(Bug::kAlwaysAccepts));
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("BROKEN"), HasSubstr("FAILED")));
}

TEST(CertifyCliTest, TablesAreNarrowAndEndWithWhatIsBroken) {
  const auto bad = cli({"certify", "planted", "--quiet"}, with_verifier(Bug::kAlwaysAccepts));
  std::istringstream lines(bad.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 120U) << line;
  }
  const size_t again = bad.out.find("\nBroken:\n");
  ASSERT_NE(again, std::string::npos);
  EXPECT_THAT(bad.out.substr(again),
              AllOf(HasSubstr("BROKEN      sampled  speculative"), HasSubstr("\nFAILED: ")));
}

TEST(CertifyCliTest, WritesJson) {
  const auto result = cli({"certify", "autoregressive", "--json", "--seeds", "1"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_TRUE(json["passed"]);
  ASSERT_EQ(json["rows"].size(), 2U);
  EXPECT_EQ(json["rows"][1]["mode"], "sampled");
  EXPECT_EQ(json["rows"][1]["finding"], "lossless");
  EXPECT_LT(json["rows"][1]["difference"], 1e-12);
}

TEST(CertifyCliTest, AnUnknownNameIsAnError) {
  const auto result = cli({"certify", "rejectoin"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'rejection'?"));
}

TEST(CertifyCliTest, AModelsFlagsNeedAConfig) {
  for (const char* flag : {"--cache=window", "--dtype=float32"}) {
    const auto result = cli({"certify", "autoregressive", flag});
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr("--config FILE"));
  }
}

CertifyRow matrix_row(const std::string& verifier, bool greedy, Finding finding,
                      const std::string& reason = "") {
  CertifyRow row;
  row.cell.strategy = {.type = "speculative", .label = "speculative", .yaml = {}};
  row.cell.drafter = {.type = "lookup", .label = "lookup(n: 2)", .yaml = {}};
  row.cell.shape = {.type = "fixed", .label = "chain fixed(length: 1)", .yaml = {}};
  row.cell.verifier = {.type = verifier, .label = verifier, .yaml = {}};
  row.greedy = greedy;
  row.finding = finding;
  row.reason = reason;
  return row;
}

TEST(CertifyReportTest, TheMatrixHasACellACombinationAndReasonsAsFootnotes) {
  CertifyResult result;
  for (const char* verifier : {"one", "two"}) {
    result.rows.push_back(matrix_row(verifier, true, Finding::kLossless));
    result.rows.push_back(matrix_row(verifier, false, Finding::kRefused, "cannot sample"));
  }
  result.rows.push_back(matrix_row("three", true, Finding::kLossy));
  result.rows.push_back(matrix_row("three", false, Finding::kLossy));
  std::ostringstream out;
  write_matrix(out, result);
  EXPECT_THAT(out.str(), HasSubstr("speculative, verifier one\nspeculative, verifier two\n"
                                   "drafter  fixed\nlookup   = [1]\n"));
  EXPECT_THAT(out.str(), HasSubstr("speculative, verifier three\ndrafter  fixed\nlookup   ~\n"));
  EXPECT_THAT(out.str(), HasSubstr("\n[1] cannot sample\n"));
  EXPECT_THAT(out.str(), HasSubstr("lookup           lookup(n: 2)\n"));
}

TEST(CertifyCliTest, ListsTheMatrixOfOneType) {
  const auto json =
      nlohmann::json::parse(cli({"list", "beam_search", "--matrix", "--json", "--quiet"}).out);
  ASSERT_GT(json["rows"].size(), 0U);
  for (const auto& row : json["rows"]) {
    EXPECT_THAT(row.dump(), HasSubstr("beam_search"));
  }
  EXPECT_LT(json["rows"].size(), 2 * certify_cells(builtin_components()).size());
  const auto unknown = cli({"list", "sufix", "--matrix", "--quiet"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'suffix'?"));
  EXPECT_THAT(cli({"certify", "window"}).err,
              HasSubstr("certify --config CONFIG --cache '{type: window, sink: 1, recent: 2, "
                        "lossy: true}'"));
  EXPECT_THAT(cli({"list", "--cache", ""}).err, HasSubstr("--cache: is empty"));
}

TEST(CertifyCliTest, ListsTheMatrix) {
  const auto text = cli({"list", "--matrix", "--quiet"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("speculative, verifier rejection\n"), HasSubstr("\n[1] "),
                              HasSubstr("draft_model 1 ")));
  std::istringstream lines(text.out);
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(line.size(), 130U) << line;
  }
  EXPECT_LE(count, 320);
}

}  // namespace
}  // namespace specdec
