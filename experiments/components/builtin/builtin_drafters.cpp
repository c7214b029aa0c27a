#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "decoders/drafters/cascade.h"
#include "decoders/drafters/corpus_bigram.h"
#include "decoders/drafters/lookahead.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/drafters/recycling.h"
#include "decoders/drafters/suffix.h"
#include "decoders/drafters/synthetic.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/corpus.h"

namespace specdec {
namespace {

OptionTable<PromptLookupOptions> prompt_lookup_options() {
  return OptionTable<PromptLookupOptions>()
      .add("max_ngram", &PromptLookupOptions::max_ngram,
           "longest match that is looked for; memory grows with it", {1, 1024})
      .add("min_ngram", &PromptLookupOptions::min_ngram, "shortest match that drafts", {1, 1024});
}

DrafterRegistry::Make prepare_prompt_lookup(const ConfigNode& node, const RunPlan&) {
  const PromptLookupOptions options = prompt_lookup_options().read(node);
  if (options.min_ngram > options.max_ngram) {
    node.fail("min_ngram",
              fmt::format("{} is more than max_ngram ({})", options.min_ngram, options.max_ngram));
  }
  return [options](BuildContext&) { return std::make_unique<PromptLookupDrafter>(options); };
}

/// What read_corpus reads.
std::vector<OptionHelp> corpus_help(const std::string& fallback) {
  return {{"corpus", fallback, "[{file: ..., held_out: 0}]",
           "texts, generations.jsonl of earlier runs or answers.jsonl; held_out leaves out the end "
           "of a file"}};
}

OptionTable<SuffixOptions> suffix_options() {
  using Options = SuffixOptions;
  return OptionTable<Options>()
      .add("min_match", &Options::min_match, "shortest match that drafts", {1, 1024})
      .add("factor", &Options::factor, "a match of m tokens drafts up to factor m + offset tokens",
           {0.0, 1024.0})
      .add("offset", &Options::offset, "see factor", {-1024.0, 1024.0})
      .add("min_probability", &Options::min_probability,
           "of a drafted path: the product of its relative frequencies", {0.0, 1.0})
      .add("max_depth", &Options::max_depth, "of a draft", {1, kMaxDraftLength})
      .describe(corpus_help("none"));
}

DrafterRegistry::Make prepare_suffix(const ConfigNode& node, const RunPlan& plan) {
  const SuffixOptions options = suffix_options().read(node);
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

/// Writes a corpus for `specdec certify`: generations that were recorded earlier.
void write_corpus(const std::filesystem::path& folder, uint64_t) {
  write_file(folder / "corpus.jsonl",
             "{\"tokens\": [0, 1, 2, 1, 1, 0]}\n"
             "{\"tokens\": [2, 0, 1, 2, 2]}\n");
}

OptionTable<CorpusBigramOptions> corpus_bigram_options() {
  return OptionTable<CorpusBigramOptions>()
      .describe(corpus_help(""))
      .add("min_probability", &CorpusBigramOptions::min_probability,
           "of a drafted path: the product of its relative frequencies", {0.0, 1.0});
}

DrafterRegistry::Make prepare_corpus_bigram(const ConfigNode& node, const RunPlan& plan) {
  const CorpusBigramOptions options = corpus_bigram_options().read(node);
  const auto table = std::make_shared<const BigramTable>(read_corpus(node, "corpus", plan, true));
  return [options, table](BuildContext&) {
    return std::make_unique<CorpusBigramDrafter>(table, options);
  };
}

OptionTable<RecyclingOptions> recycling_options() {
  return OptionTable<RecyclingOptions>()
      .add("candidates", &RecyclingOptions::candidates, "successors kept of each token", {1, 1024})
      .renamed("keep", "persist")
      .add("persist", &RecyclingOptions::persist,
           "true: the table outlives a request, as in the paper; drafts then depend on the order "
           "of requests, and a resumed run starts with an empty table");
}

DrafterRegistry::Make prepare_recycling(const ConfigNode& node, const RunPlan&) {
  const RecyclingOptions options = recycling_options().read(node);
  return [options](BuildContext&) { return std::make_unique<RecyclingDrafter>(options); };
}

OptionTable<LookaheadOptions> lookahead_options() {
  return OptionTable<LookaheadOptions>()
      .add("window", &LookaheadOptions::window, "W: positions ahead that are guessed in parallel",
           {1, kMaxDraftLength})
      .add("ngram", &LookaheadOptions::ngram,
           "N: tokens of an n-gram; the window takes (W - 1) + W (N - 2) nodes",
           {2, kMaxDraftLength})
      .add("guesses", &LookaheadOptions::guesses,
           "G: n-grams kept of each first token, and verified in a step; they take G (N - 1) nodes",
           {1, kMaxDraftLength})
      .add("pool_from_prompt", &LookaheadOptions::pool_from_prompt,
           "true: the n-grams of prompt and output too");
}

DrafterRegistry::Make prepare_lookahead(const ConfigNode& node, const RunPlan& plan) {
  const LookaheadOptions options = lookahead_options().read(node);
  const std::optional<int64_t> branches = plan.draft->branches;
  if (branches && *branches < options.least_branches()) {
    node.fail_at(
        "type",
        fmt::format("lookahead drafts a window beside its guesses: with ngram {} it needs "
                    "a tree of at least {} children a node, such as tree: {{type: dynamic, "
                    "nodes: 40, depth: 10, top_k: 8}}, and {} allowed here",
                    options.ngram, options.least_branches(),
                    *branches == 1 ? "a chain is all that is" : fmt::format("{} are", *branches)));
  }
  return [options](BuildContext&) { return std::make_unique<LookaheadDrafter>(options); };
}

/// What a member of a cascade has beside its own options.
struct CascadeMemberOptions {
  int64_t min_tokens = 1;
  int64_t max_tokens = kMaxDraftLength;
};

OptionTable<CascadeMemberOptions> cascade_member_options() {
  return OptionTable<CascadeMemberOptions>()
      .add("min_tokens", &CascadeMemberOptions::min_tokens,
           "of a member: a shorter draft, where the step allows more, passes on to the next one",
           {1, kMaxDraftLength})
      .add("max_tokens", &CascadeMemberOptions::max_tokens,
           "of a member: its drafts are no longer, whatever the step allows", {1, kMaxDraftLength});
}

DrafterRegistry::Make prepare_cascade(const ConfigNode& node, const RunPlan& plan) {
  struct Planned {
    DrafterRegistry::Make make;
    CascadeMemberOptions options;
  };
  std::vector<Planned> planned;
  for (const ConfigNode& member : node.components("drafters")) {
    const CascadeMemberOptions options = cascade_member_options().read(member);
    RunPlan member_plan = plan;
    member_plan.draft = std::make_shared<DraftNotes>(*plan.draft);
    // A draft has no more levels than tokens.
    member_plan.draft->branch_levels = std::min(plan.draft->branch_levels, options.max_tokens);
    planned.push_back({plan.components.drafters.prepare(member, member_plan), options});
    plan.draft->hidden_states = member_plan.draft->hidden_states;
    const int64_t min_tokens = options.min_tokens;
    if (options.max_tokens < min_tokens) {
      member.fail("max_tokens",
                  fmt::format("{} is fewer than min_tokens ({})", options.max_tokens, min_tokens));
    }
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
    members.reserve(planned.size());
    for (const Planned& member : planned) {
      members.push_back(
          {member.make(context), member.options.min_tokens, member.options.max_tokens});
    }
    return std::make_unique<CascadeDrafter>(std::move(members));
  };
}

DrafterRegistry::Make prepare_synthetic_drafter(const ConfigNode&, const RunPlan&) {
  return [](BuildContext&) { return std::make_unique<SyntheticDrafter>(); };
}

void add_lookups(DrafterRegistry& drafters) {
  const std::string page = "docs/retrieval_drafters.md";
  drafters.add("prompt_lookup",
               {.help = "copies what followed the longest earlier match of the newest tokens",
                .source = "Saxena, 2023",
                .page = page,
                .options = prompt_lookup_options().help(),
                .promise = Promise::kLossless,
                .prepare = prepare_prompt_lookup,
                .examples = {{"{type: prompt_lookup, max_ngram: 2, min_ngram: 1}"}}});
  drafters.add(
      "suffix",
      {.help = "what followed the newest tokens earlier, by counts, in the text so far "
               "and in a corpus",
       .source = "suffix decoding, arXiv:2411.04975; SAM decoding, arXiv:2411.10666; "
                 "REST, arXiv:2311.08252",
       .page = page,
       .options = suffix_options().help(),
       .promise = Promise::kLossless,
       .prepare = prepare_suffix,
       .examples = {{"{type: suffix, offset: 1, min_probability: 0}"},
                    {"{type: suffix, offset: 2, corpus: [{file: <folder>/corpus.jsonl}]}"}},
       .write_example_files = write_corpus});
  drafters.add("corpus_bigram",
               {.help = "the most frequent successors in a corpus: the baseline of trained heads",
                .page = page,
                .options = corpus_bigram_options().help(),
                .promise = Promise::kLossless,
                .prepare = prepare_corpus_bigram,
                .examples = {{"{type: corpus_bigram, corpus: [{file: <folder>/corpus.jsonl}]}"}},
                .write_example_files = write_corpus});
}

void add_own_guesses(DrafterRegistry& drafters) {
  const std::string page = "docs/retrieval_drafters.md";
  drafters.add("recycling", {.help = "the target's most likely tokens where it saw a token last",
                             .source = "token recycling, arXiv:2408.08696",
                             .page = page,
                             .options = recycling_options().help(),
                             .promise = Promise::kLossless,
                             .prepare = prepare_recycling,
                             // A kept table makes one output depend on those before it, which
                             // cannot be enumerated.
                             .examples = {{"{type: recycling, candidates: 2}"}}});
  drafters.add("lookahead",
               {.help = "n-grams from the target's own Jacobi iterations; needs a tree",
                .source = "lookahead decoding, arXiv:2402.02057",
                .page = page,
                .options = lookahead_options().help(),
                .promise = Promise::kLossless,
                .prepare = prepare_lookahead,
                .examples = {{"{type: lookahead, window: 2, ngram: 2, guesses: 1, "
                              "pool_from_prompt: true}"}}});
}

void add_cascade(DrafterRegistry& drafters) {
  auto options = cascade_member_options().help();
  options.insert(options.begin(),
                 {"drafters", "", "[{type: ..., min_tokens: 1}]", "its members, in order"});
  drafters.add("cascade",
               {.help = "the first of several drafters that proposes enough tokens",
                .page = "docs/retrieval_drafters.md",
                .options = std::move(options),
                .promise = Promise::kLossless,
                .prepare = prepare_cascade,
                .examples = {{"{type: cascade, drafters: [{type: prompt_lookup, min_tokens: 2}, "
                              "{type: draft_model, weights: <folder>/draft}]}"}}});
}

}  // namespace

OptionTable<WeightsOptions> weights_options(const std::string& weights) {
  return OptionTable<WeightsOptions>()
      .require("weights", &WeightsOptions::weights, weights)
      .add("sample", &WeightsOptions::sample, kSampleMeaning, {}, kSampleDefault);
}

void add_drafters(DrafterRegistry& drafters) {
  add_lookups(drafters);
  add_own_guesses(drafters);
  add_cascade(drafters);
  drafters.add("synthetic",
               {.help = "repeats the newest token, at no cost: for verifier synthetic, to measure "
                        "what speculation costs",
                .page = "docs/verifiers.md",
                .promise = Promise::kLossless,
                .prepare = prepare_synthetic_drafter});
}

}  // namespace specdec
