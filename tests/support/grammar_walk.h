#pragma once
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compiled_grammar.h"

namespace specdec {

/// True when the text is one of the grammar's.
inline bool accepts(const CompiledGrammar& grammar, std::string_view text) {
  return grammar.is_complete(grammar.next(grammar.start(), text));
}

/// Random texts of a grammar, byte by byte, from what `next` and `is_complete` say alone.
class GrammarWalk {
 public:
  /// Borrows the grammar. `schema`: JSON whose strings its texts are likely to need.
  GrammarWalk(const CompiledGrammar& grammar, std::string_view schema, uint32_t seed);

  /// A whole text whose first bytes, up to `wild`, were drawn among all that are alive. Nothing
  /// when it has run into a dead end (`begun` then holds the text up to there), or is lost.
  std::optional<std::string> text(size_t wild);
  const std::string& begun() const { return begun_; }
  /// True when the last text was given up, though there may be a way on.
  bool lost() const { return lost_; }
  /// Bytes that lead from a state to a complete one: found at random, else by breadth-first search.
  std::optional<std::string> completion(StateId from);

 private:
  struct Move {
    StateId next = 0;
    std::string bytes;
  };
  std::optional<Move> first_alive(StateId state, std::string_view bytes) const;
  std::optional<Move> any_word(StateId state);
  std::optional<Move> any_move(StateId state);
  std::optional<Move> closing_move(StateId state);
  std::optional<std::string> search(StateId from);

  const CompiledGrammar& grammar_;
  std::vector<std::string> words_;  ///< with the quote after them
  std::string letters_;
  std::string all_bytes_;
  std::mt19937 random_;
  std::string begun_;
  bool lost_ = false;
};

}  // namespace specdec
