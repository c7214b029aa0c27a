#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/json/open_string.h"
#include "grammar/masks/apart_tokens.h"
#include "grammar/masks/string_masks.h"
#include "grammar/masks/vocabulary_tokens.h"
#include "grammar/tables/intern_table.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Finds out which tokens an automaton allows at a state: walks the tokens' tree and the automaton
/// together, but takes what lies inside a JSON string from the StringMasks.
class MaskBuilder {
 public:
  /// Borrows all three; `strings` has the tree of the `tokens`.
  MaskBuilder(const VocabularyTokens& tokens, StringMasks& strings, Automaton& automaton);

  TokenMask::Content build(StateId state);

 private:
  using Node = TokenTrie::Node;

  void visit(Node node, StateId state);
  void visit_child(Node child, StateId state);
  void visit_alike(StateId state, const AlikePlace& place);
  void visit_apart(Node node, StateId state, const ApartTokens& apart);
  void visit_string(Node node, StateId state, const OpenString& string);
  void add_part(Node node, StateId state, const OpenString& string, const OpenString::Part& part);
  /// What may follow a closing quote.
  struct Remainder {
    uint32_t id = 0;
    bool depends = false;  ///< on what the string was
    bool operator==(const Remainder&) const = default;
  };
  struct Ending;
  void add_exit(const Ending& ending, const StringMasks::Exit& exit);
  /// Names of a string that are told apart, and what decides about the tokens on the way to them.
  struct Names {
    const OpenString& string;
    StateId state;     ///< where the string was described
    std::string path;  ///< from there on
    bool all_inside;   ///< the base has every token that does not close the name
    bool by_text;      ///< a class may have no name left but these
  };
  /// A node on the way to names: those that begin so, and how much of them was read.
  struct NamesAt {
    Node node;
    std::span<const OpenString::Word> words;
    size_t length;
    JsonStringDecoder decoder;
    std::vector<RegexId> rests;  ///< of what else the string may be, where that may be endless
  };

  void follow_names(Names& names, const NamesAt& at);
  void follow_byte(Names& names, NamesAt at, Node child);
  bool take(const OpenString& string, NamesAt& at, uint8_t byte);
  static bool may_be(const OpenString& string, const NamesAt& at, const OpenString::Word& word);
  void add_name_tokens(const Names& names, const NamesAt& at);
  bool is_endless(const NamesAt& at);
  void add(std::span<const Token> tokens);
  void add_words(const std::shared_ptr<const MaskWords>& words);
  bool really_allowed(Node node, StateId state, Token token);
  StateId walk(StateId state, std::string_view bytes);
  const std::vector<Remainder>& remainders(StateId closed);
  void collect_remainders(Node node, StateId state, std::vector<Remainder>& found);
  void settle_overrides();
  void spread_added();
  void keep_removed();

  const VocabularyTokens& tokens_;
  const TokenTrie& trie_;
  StringMasks& strings_;
  Automaton& automaton_;
  StringStates* string_states_;
  std::vector<Token> named_tokens_;
  std::map<Automaton*, std::unique_ptr<MaskBuilder>> alike_;  ///< of other automata
  std::map<std::string, ApartTokens> apart_;                  ///< by their bytes
  TokenMask::Content content_;
  /// Subtrees in which single names decide, not the language that they are exceptions of.
  std::vector<std::pair<Node, StateId>> overrides_;
  std::vector<Token> doubtful_;   ///< forbidden unless added, though the base may have them
  std::vector<Token> forbidden_;  ///< tried
  struct Hash {
    size_t operator()(const std::vector<Remainder>& remainders) const;
  };
  std::unordered_map<StateId, uint32_t> remainders_;  ///< alive after a closing quote: which set
  InternTable<std::vector<Remainder>, Hash> remainder_sets_;
};

}  // namespace specdec
