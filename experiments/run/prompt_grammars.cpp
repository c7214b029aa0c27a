#include "experiments/run/prompt_grammars.h"

#include "core/stopwatch.h"

namespace specdec {

GrammarSource grammar_of(const GrammarConfig& config, const Prompt& prompt) {
  GrammarSource source = config.source;
  if (config.per_prompt) {
    source.text = prompt.schema;
    source.name = "prompt " + prompt.id;
  }
  return source;
}

const PromptGrammars::Entry& PromptGrammars::get(const GrammarConfig& config, const Prompt& prompt,
                                                 const Tokenizer& tokenizer,
                                                 const std::vector<Token>& end_ids) {
  auto& vocabulary = vocabularies_[{&tokenizer, end_ids}];
  if (vocabulary == nullptr) {
    vocabulary =
        make_grammar_vocabulary(tokenizer, end_ids, {}, {.folder = default_cache_folder()});
  }
  if (config.source.cuts == Cuts::kCanonical) {
    vocabulary->learn_cuts(tokenizer);
  }
  auto& entry = grammars_[{vocabulary.get(), &config, prompt.schema}];
  if (entry.grammar == nullptr || entry.grammar->is_used_up()) {
    const Stopwatch stopwatch;
    entry.grammar = compile_grammar(vocabulary, grammar_of(config, prompt));
    entry.compile_seconds = stopwatch.seconds();
  }
  return entry;
}

}  // namespace specdec
