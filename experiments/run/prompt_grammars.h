#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "experiments/grammar/grammar_config.h"
#include "experiments/run/prompts.h"
#include "grammar/compiled_grammar.h"

namespace specdec {

/// The grammar that a prompt's output obeys: the config's, or the prompt's own schema.
GrammarSource grammar_of(const GrammarConfig& config, const Prompt& prompt);

/// The grammars of a run, each compiled once, or anew when its texts have used it up.
class PromptGrammars {
 public:
  struct Entry {
    std::shared_ptr<const CompiledGrammar> grammar;
    double compile_seconds = 0.0;
  };

  /// `config` and `tokenizer` outlive the object. Texts end with `end_ids`. Throws GrammarError.
  const Entry& get(const GrammarConfig& config, const Prompt& prompt, const Tokenizer& tokenizer,
                   const std::vector<Token>& end_ids);

 private:
  using VocabularyKey = std::pair<const Tokenizer*, std::vector<Token>>;
  using GrammarKey = std::tuple<const GrammarVocabulary*, const GrammarConfig*, std::string>;

  std::map<VocabularyKey, std::shared_ptr<GrammarVocabulary>> vocabularies_;
  std::map<GrammarKey, Entry> grammars_;
};

}  // namespace specdec
