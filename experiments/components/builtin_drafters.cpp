#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "decoders/drafters/cascade.h"
#include "decoders/drafters/corpus_bigram.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/lookahead.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/drafters/recycling.h"
#include "decoders/drafters/suffix.h"
#include "decoders/drafters/synthetic.h"
#include "experiments/components/builtin.h"
#include "experiments/components/corpus.h"

namespace specdec {
namespace {

DrafterRegistry::Make prepare_draft_model(const ConfigNode& node, const RunPlan& plan) {
  const auto weights = node.require_path("weights");
  const DraftModelOptions options{.sample = node.find<bool>("sample")};
  if (!weights.empty() && plan.target != nullptr) {
    note_error(node, "weights", [&] {
      const auto& draft = plan.models.read(weights);
      const auto mismatch = vocabulary_mismatch(*plan.target, draft);
      if (!mismatch.empty()) {
        node.fail("weights", mismatch + "; a draft model must share the target's tokenizer");
      } else if (draft.config.bidirectional) {
        node.fail("weights", "is an encoder (bidirectional attention): cannot decode");
      }
    });
  }
  return [weights, options](BuildContext& context) {
    auto model = context.models.load(weights);
    context.draft_model = model.get();
    context.draft_model_name = weights.string();
    return std::make_unique<DraftModelDrafter>(std::move(model), options);
  };
}

DrafterRegistry::Make prepare_prompt_lookup(const ConfigNode& node, const RunPlan&) {
  PromptLookupOptions options;
  options.max_ngram = node.get<int64_t>("max_ngram", options.max_ngram, {1, 1024});
  options.min_ngram = node.get<int64_t>("min_ngram", options.min_ngram, {1, 1024});
  if (options.min_ngram > options.max_ngram) {
    node.fail("min_ngram",
              fmt::format("{} is more than max_ngram ({})", options.min_ngram, options.max_ngram));
  }
  return [options](BuildContext&) { return std::make_unique<PromptLookupDrafter>(options); };
}

DrafterRegistry::Make prepare_suffix(const ConfigNode& node, const RunPlan& plan) {
  SuffixOptions options;
  options.min_match = node.get<int64_t>("min_match", options.min_match, {1, 1024});
  options.factor = node.get<double>("factor", options.factor, {0.0, 1024.0});
  options.offset = node.get<double>("offset", options.offset, {-1024.0, 1024.0});
  options.min_probability =
      node.get<double>("min_probability", options.min_probability, {0.0, 1.0});
  options.max_depth = node.get<int64_t>("max_depth", options.max_depth, {1, kMaxDraftLength});
  const auto documents = read_corpus(node, "corpus", plan, false);
  std::shared_ptr<SuffixAutomaton> corpus;
  if (!documents.empty()) {
    corpus = std::make_shared<SuffixAutomaton>();
    for (const std::vector<Token>& document : documents) {
      for (const Token token : document) {
        corpus->append(token);
      }
      corpus->append_border();
    }
  }
  return
      [options, corpus](BuildContext&) { return std::make_unique<SuffixDrafter>(options, corpus); };
}

/// For `specdec certify`: generations that were recorded earlier.
void write_corpus(const std::filesystem::path& folder, uint64_t) {
  write_file(folder / "corpus.jsonl",
             "{\"tokens\": [0, 1, 2, 1, 1, 0]}\n"
             "{\"tokens\": [2, 0, 1, 2, 2]}\n");
}

DrafterRegistry::Make prepare_corpus_bigram(const ConfigNode& node, const RunPlan& plan) {
  CorpusBigramOptions options;
  options.min_probability =
      node.get<double>("min_probability", options.min_probability, {0.0, 1.0});
  const auto table = std::make_shared<const BigramTable>(read_corpus(node, "corpus", plan, true));
  return [options, table](BuildContext&) {
    return std::make_unique<CorpusBigramDrafter>(table, options);
  };
}

DrafterRegistry::Make prepare_recycling(const ConfigNode& node, const RunPlan&) {
  RecyclingOptions options;
  options.candidates = node.get<int64_t>("candidates", options.candidates, {1, 1024});
  node.refuse_old_name("keep", "persist");
  options.persist = node.get<bool>("persist", options.persist);
  return [options](BuildContext&) { return std::make_unique<RecyclingDrafter>(options); };
}

DrafterRegistry::Make prepare_lookahead(const ConfigNode& node, const RunPlan& plan) {
  LookaheadOptions options;
  options.window = node.get<int64_t>("window", options.window, {1, kMaxDraftLength});
  options.ngram = node.get<int64_t>("ngram", options.ngram, {2, kMaxDraftLength});
  options.guesses = node.get<int64_t>("guesses", options.guesses, {1, kMaxDraftLength});
  options.pool_from_prompt = node.get<bool>("pool_from_prompt", options.pool_from_prompt);
  if (plan.branches != nullptr && *plan.branches < options.least_branches()) {
    node.fail_at(
        "type", fmt::format("lookahead drafts a window beside its guesses: with ngram {} it needs "
                            "a tree of at least {} children a node, such as tree: {{type: dynamic, "
                            "nodes: 40, depth: 10, top_k: 8}}, and {} allowed here",
                            options.ngram, options.least_branches(),
                            *plan.branches == 1 ? "a chain is all that is"
                                                : fmt::format("{} are", *plan.branches)));
  }
  return [options](BuildContext&) { return std::make_unique<LookaheadDrafter>(options); };
}

DrafterRegistry::Make prepare_cascade(const ConfigNode& node, const RunPlan& plan) {
  struct Planned {
    DrafterRegistry::Make make;
    int64_t min_tokens;
  };
  std::vector<Planned> planned;
  for (const ConfigNode& member : node.children("drafters")) {
    const auto min_tokens = member.get<int64_t>("min_tokens", 1, {1, kMaxDraftLength});
    planned.push_back({plan.components.drafters.prepare(member, plan), min_tokens});
    if (min_tokens > 1 && member.has("sample") && member.get<bool>("sample", false)) {
      member.fail("min_tokens",
                  fmt::format("{} would drop drafts whose tokens were drawn, which "
                              "changes the output's distribution; give 1, or sample: false",
                              min_tokens));
    }
  }
  if (planned.empty() && node.is_list("drafters")) {
    node.fail("drafters", "the list is empty; give at least one drafter, such as {type: suffix}");
  }
  return [planned](BuildContext& context) {
    std::vector<CascadeMember> members;
    for (const Planned& member : planned) {
      members.push_back({member.make(context), member.min_tokens});
    }
    return std::make_unique<CascadeDrafter>(std::move(members));
  };
}

DrafterRegistry::Make prepare_synthetic_drafter(const ConfigNode&, const RunPlan&) {
  return [](BuildContext&) { return std::make_unique<SyntheticDrafter>(); };
}

void add_lookups(DrafterRegistry& drafters) {
  drafters.add("prompt_lookup",
               {.help = "copies what followed the longest earlier match of the newest tokens\n"
                        "max_ngram, min_ngram: lengths of the match to try",
                .promise = Promise::kLossless,
                .prepare = prepare_prompt_lookup,
                .examples = {{"{type: prompt_lookup, max_ngram: 2, min_ngram: 1}"}}});
  drafters.add(
      "suffix",
      {.help = "what followed the newest tokens earlier, by counts (suffix decoding, SAM, REST)\n"
               "factor: 1.0, offset: 0: a match of m tokens drafts up to factor * m + offset\n"
               "min_match: 1, min_probability: 0.1 (of a drafted path), max_depth: 64\n"
               "corpus: [{file: ..., held_out: 0}]: texts, or generations.jsonl of earlier runs",
       .promise = Promise::kLossless,
       .prepare = prepare_suffix,
       .examples = {{"{type: suffix, offset: 1, min_probability: 0}"},
                    {"{type: suffix, offset: 2, corpus: [{file: <folder>/corpus.jsonl}]}"}},
       .write_example_files = write_corpus});
  drafters.add("corpus_bigram",
               {.help = "the most frequent successors in a corpus: the baseline of trained heads\n"
                        "corpus: [{file: ..., held_out: 0}], min_probability: 0 (of a path)",
                .promise = Promise::kLossless,
                .prepare = prepare_corpus_bigram,
                .examples = {{"{type: corpus_bigram, corpus: [{file: <folder>/corpus.jsonl}]}"}},
                .write_example_files = write_corpus});
}

void add_own_guesses(DrafterRegistry& drafters) {
  drafters.add(
      "recycling",
      {.help =
           "the target's most likely tokens where it saw a token last (token recycling)\n"
           "candidates: 8 a token\n"
           "persist: false (true: the table outlives a request; speeds then depend on the order)",
       .promise = Promise::kLossless,
       .prepare = prepare_recycling,
       // A kept table makes one output depend on those before it, which cannot be enumerated.
       .examples = {{"{type: recycling, candidates: 2}"}}});
  drafters.add("lookahead",
               {.help = "n-grams from the target's own Jacobi iterations; needs a tree\n"
                        "window: 7, ngram: 5, guesses: 7: up to (window - 1) + window (ngram - 2) "
                        "+ guesses (ngram - 1)\nnodes; pool_from_prompt: false",
                .promise = Promise::kLossless,
                .prepare = prepare_lookahead,
                .examples = {{"{type: lookahead, window: 2, ngram: 2, guesses: 1, "
                              "pool_from_prompt: true}"}}});
}

}  // namespace

void add_drafters(DrafterRegistry& drafters) {
  drafters.add(
      "draft_model",
      {.help = "a smaller model with the same tokenizer decodes ahead\n"
               "weights: its checkpoint folder\n"
               "sample: true draws from its distribution when the target samples, false takes "
               "its best tokens (default: true, but false under a dynamic tree)",
       .promise = Promise::kLossless,
       .prepare = prepare_draft_model,
       .examples = {{"{type: draft_model, weights: <folder>/draft, sample: true}"},
                    {"{type: draft_model, weights: <folder>/draft, sample: false}"}}});
  add_lookups(drafters);
  add_own_guesses(drafters);
  drafters.add("cascade",
               {.help = "the first of several drafters that proposes enough tokens\n"
                        "drafters: [{type: ..., min_tokens: 1, ...}]: a shorter draft passes on",
                .promise = Promise::kLossless,
                .prepare = prepare_cascade,
                .examples = {{"{type: cascade, drafters: [{type: prompt_lookup, min_tokens: 2}, "
                              "{type: draft_model, weights: <folder>/draft}]}"}}});
  drafters.add("synthetic",
               {.help = "repeats the newest token, at no cost: for verifier synthetic, to measure "
                        "what speculation costs",
                .promise = Promise::kLossless,
                .prepare = prepare_synthetic_drafter});
}

}  // namespace specdec
