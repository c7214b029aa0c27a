#include "grammar/grammar_vocabulary.h"

#include <algorithm>
#include <string>
#include <utility>

namespace specdec {

GrammarVocabulary::GrammarVocabulary(const std::vector<std::string>& bytes,
                                     std::vector<Token> end_tokens)
    : bytes_(bytes),
      end_tokens_(std::move(end_tokens)),
      trie_({bytes_.begin(), bytes_.end()}),
      strings_(trie_, regexes_) {
  std::sort(end_tokens_.begin(), end_tokens_.end());
}

}  // namespace specdec
