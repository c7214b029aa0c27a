#pragma once
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Finds out which tokens an automaton allows at a state: walks the tokens' tree and the automaton
/// together, but takes what lies inside a JSON string from the vocabulary's StringMasks.
class MaskBuilder {
 public:
  /// Borrows both.
  MaskBuilder(GrammarVocabulary& vocabulary, Automaton& automaton);

  TokenMask::Content build(StateId state);

 private:
  using Node = TokenTrie::Node;

  void visit(Node node, StateId state);
  void visit_child(Node child, StateId state);
  void visit_string(Node node, StateId state, const StringPlace& place);
  void add_part(Node node, StateId state, const StringPlace& place, const StringPlace::Part& part);
  void add_exit(Node node, StateId state, const StringPlace::Part& part,
                const StringMasks::Exit& exit);
  void add_word(Node node, StateId state, const std::string& word, bool alone);
  void add(std::span<const Token> tokens);
  void add_words(std::shared_ptr<const MaskWords> words);
  bool really_allowed(Node node, StateId state, Token token);
  StateId walk(StateId state, std::string_view bytes);
  const std::vector<uint32_t>& remainders(StateId closed);
  void collect_remainders(Node node, StateId state, std::vector<uint32_t>& found);
  void settle_overrides();

  GrammarVocabulary& vocabulary_;
  Automaton& automaton_;
  TokenMask::Content content_;
  /// Subtrees in which single names decide, not the language that they are exceptions of.
  std::vector<std::pair<Node, StateId>> overrides_;
  std::vector<Token> doubtful_;  ///< of the base, but found to be forbidden
  std::unordered_map<StateId, std::vector<uint32_t>> remainders_;  ///< alive after a closing quote
};

}  // namespace specdec
