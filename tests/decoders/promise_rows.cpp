#include "tests/decoders/promise_rows.h"

#include "decoders/autoregressive.h"
#include "decoders/drafters/block.h"
#include "decoders/drafters/cascade.h"
#include "decoders/drafters/corpus_bigram.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/lookahead.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/drafters/recycling.h"
#include "decoders/drafters/suffix.h"
#include "decoders/drafters/synthetic.h"
#include "decoders/shapes/cost_aware.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"
#include "decoders/verifiers/threshold.h"
#include "tests/support/retrieval.h"
#include "tests/support/test_drafters.h"

namespace specdec {
namespace {

struct DrafterRow {
  std::string name;
  std::function<std::unique_ptr<Drafter>(const LogitTable& table, const LanguageModel& target)>
      make;
  bool trees = false;  // branches even when a chain is asked for
};

struct VerifierRow {
  std::string name;
  std::function<std::unique_ptr<Verifier>()> make;
  bool samples;  // promises the distribution at temperatures above 0
  bool trees;
};

struct ShapeRow {
  std::string name;
  std::function<std::unique_ptr<DraftShape>()> make;
};

/// A draft model with as large a vocabulary, and as little room, as the target has.
std::unique_ptr<LanguageModel> draft_model(const LogitTable& table, const LanguageModel& target) {
  return std::make_unique<FakeModel>(target.vocab_size(), table, target.max_length());
}

/// Drafters that look things up: they fill whatever room they are given.
std::vector<DrafterRow> lookups() {
  static const std::vector<std::vector<Token>> kCorpus = {{0, 1, 2, 1, 1, 0}, {2, 0, 1, 2, 2}};
  const auto suffix = [] {
    auto corpus = std::make_shared<SuffixAutomaton>();
    for (const Token token : kCorpus[0]) {
      corpus->append(token);
    }
    return std::make_unique<SuffixDrafter>(SuffixOptions{.offset = 2.0}, corpus);
  };
  return {
      {"suffix", [=](const LogitTable&, const LanguageModel&) { return suffix(); }},
      {"corpus_bigram",
       [](const LogitTable&, const LanguageModel&) {
         return std::make_unique<CorpusBigramDrafter>(std::make_shared<BigramTable>(kCorpus));
       }},
      {"recycling",
       [](const LogitTable&, const LanguageModel&) {
         return std::make_unique<RecyclingDrafter>(RecyclingOptions{.candidates = 3});
       }},
      {"cascade",
       [=](const LogitTable& table, const LanguageModel& target) {
         std::vector<CascadeMember> members;
         members.push_back({suffix(), 2});
         members.push_back({std::make_unique<DraftModelDrafter>(draft_model(table, target))});
         members.push_back({std::make_unique<RecyclingDrafter>()});
         return std::make_unique<CascadeDrafter>(std::move(members));
       }},
      {"synthetic", [](const LogitTable&,
                       const LanguageModel&) { return std::make_unique<SyntheticDrafter>(); }},
  };
}

std::vector<DrafterRow> drafters() {
  std::vector<DrafterRow> rows = lookups();
  const std::vector<DrafterRow> others = {
      {"draft_model",
       [](const LogitTable& table, const LanguageModel& target) {
         return std::make_unique<DraftModelDrafter>(draft_model(table, target));
       }},
      {"draft_model_greedy",
       [](const LogitTable& table, const LanguageModel& target) {
         return std::make_unique<DraftModelDrafter>(draft_model(table, target),
                                                    DraftModelOptions{.sample = false});
       }},
      {"block",
       [](const LogitTable& table, const LanguageModel& target) {
         return std::make_unique<BlockDrafter>(
             std::make_unique<FakeBlock>(target.vocab_size(), table),
             BlockDrafterOptions{.capture_layers = {FakeBlock::kLayer}});
       }},
      {"prompt_lookup",
       [](const LogitTable&, const LanguageModel&) {
         return std::make_unique<PromptLookupDrafter>(
             PromptLookupOptions{.min_ngram = 1, .max_ngram = 3});
       }},
      {"sampled_tree",
       [](const LogitTable& table, const LanguageModel&) {
         return std::make_unique<TreeDrafter>(table);
       },
       true},
      {"chosen_tree",
       [](const LogitTable& table, const LanguageModel&) {
         return std::make_unique<TreeDrafter>(table,
                                              TreeDrafterOptions{.branches = 2, .sample = false});
       },
       true},
      {"mixed_chain",
       [](const LogitTable& table, const LanguageModel&) {
         return std::make_unique<MixedChainDrafter>(table);
       }},
  };
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

/// Rows for trees alone: what looks things up, and lookahead, whose window needs one.
std::vector<DrafterRow> tree_lookups() {
  std::vector<DrafterRow> rows = lookups();
  std::erase_if(rows, [](const DrafterRow& row) { return row.name == "cascade"; });
  rows.push_back({"lookahead", [](const LogitTable&, const LanguageModel&) {
                    return std::make_unique<LookaheadDrafter>(LookaheadOptions{
                        .window = 2, .ngram = 3, .guesses = 2, .pool_from_prompt = true});
                  }});
  return rows;
}

std::vector<VerifierRow> verifiers() {
  return {
      {"exact_match", [] { return std::make_unique<ExactMatchVerifier>(); }, false, true},
      {"block", [] { return std::make_unique<BlockVerifier>(); }, true, false},
      {"sample_match", [] { return std::make_unique<SampleMatchVerifier>(); }, true, true},
      {"threshold_of_one", [] { return std::make_unique<ThresholdVerifier>(); }, true, true},
      {"rejection", [] { return std::make_unique<RejectionVerifier>(); }, true, true},
  };
}

/// Counts more than it costs, so that drafts of every size come up.
CostAwareOptions cheap_drafts() {
  CostAwareOptions options{.max_nodes = 4, .max_depth = 3, .branches = 2, .acceptance = {0.7, 0.2}};
  options.explore = 1.0;
  options.persist = false;
  options.target_cost.points = {{.new_tokens = 1, .context = 1, .seconds = 1.0},
                                {.new_tokens = 5, .context = 1, .seconds = 1.3}};
  return options;
}

std::vector<ShapeRow> shapes() {
  return {
      {"fixed", [] { return std::make_unique<FixedDraftLength>(3); }},
      {"heuristic",
       [] {
         return std::make_unique<HeuristicDraftLength>(
             HeuristicOptions{.initial = 1, .min = 1, .max = 3});
       }},
      // Quick to pause, so that short outputs hold drafted and plain steps.
      {"adaptive",
       [] {
         return std::make_unique<AdaptiveDraftLength>(
             AdaptiveOptions{.initial = 1, .max = 3, .memory = 0.5, .pause = 1, .probe = 1});
       }},
      {"static_tree",
       [] {
         return std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {1, 0}}));
       }},
      {"dynamic_tree",
       [] {
         return std::make_unique<DynamicTreeShape>(
             DynamicTreeOptions{.nodes = 3, .depth = 2, .top_k = 2});
       }},
      {"cost_aware_tree", [] { return std::make_unique<CostAwareShape>(cheap_drafts()); }},
  };
}

StrategyRow speculative_row(const DrafterRow& drafter, const VerifierRow& verifier,
                            const ShapeRow& shape) {
  return {drafter.name + "_" + verifier.name + "_" + shape.name, verifier.samples,
          [=](LanguageModel& target, const LogitTable& table) {
            return std::make_unique<SpeculativeDecoding>(target, drafter.make(table, target),
                                                         verifier.make(), shape.make());
          }};
}

/// A row of speculative decoding with room for a tree.
StrategyRow speculative_tree_row(const DrafterRow& drafter, const VerifierRow& verifier) {
  return {drafter.name + "_" + verifier.name + "_tree", verifier.samples,
          [=](LanguageModel& target, const LogitTable& table) {
            return std::make_unique<SpeculativeDecoding>(
                target, drafter.make(table, target), verifier.make(),
                std::make_unique<Room>(DraftLimits{.tokens = 6, .depth = 3, .branches = 4}));
          }};
}

}  // namespace

std::vector<StrategyRow> promise_rows() {
  std::vector<StrategyRow> rows = {
      {"autoregressive", true, [](LanguageModel& target, const LogitTable&) {
         return std::make_unique<AutoregressiveDecoding>(target);
       }}};
  for (const DrafterRow& drafter : drafters()) {
    for (const VerifierRow& verifier : verifiers()) {
      for (const ShapeRow& shape : shapes()) {
        if (verifier.trees || !(drafter.trees || shape.make()->branches())) {
          rows.push_back(speculative_row(drafter, verifier, shape));
        }
      }
    }
  }
  for (const DrafterRow& drafter : tree_lookups()) {
    for (const VerifierRow& verifier : verifiers()) {
      if (verifier.trees) {
        rows.push_back(speculative_tree_row(drafter, verifier));
      }
    }
  }
  return rows;
}

}  // namespace specdec
