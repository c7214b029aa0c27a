#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/cfg/context_free.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// A text as characters and named tokens. A boundary is a place between two of them, before the
/// first or behind the last.
struct ChartText {
  struct Unit {
    char32_t point = 0;
    std::optional<Token> token;
  };
  std::string bytes;
  std::vector<Unit> units;
  std::vector<size_t> offsets = {0};       ///< by boundary, in `bytes`
  std::vector<bool> token_ends = {false};  ///< by boundary: a token ends there
  uint32_t boundaries() const { return static_cast<uint32_t>(offsets.size()); }

  /// The text of some parts, without a character at the end that is not finished.
  explicit ChartText(std::span<const TextPart> parts);
};

/// Which parts of a text the symbols of a grammar match: Earley's parser (1970) for one text.
class ParseChart {
 public:
  using SlotId = ContextFreeGrammar::SlotId;
  using Symbol = ContextFreeGrammar::Symbol;
  /// Boundaries, ascending.
  using Ends = std::vector<uint32_t>;

  /// Borrows all three. Throws GrammarError when the parse takes too many steps.
  ParseChart(RegexStore& regexes, const ContextFreeGrammar& grammar, const ChartText& text);

  /// Ends of a symbol's texts that begin at a boundary where it may stand.
  const Ends& ends(Symbol symbol, uint32_t begin);
  /// Ends of the texts of the rest of a production that begin there.
  const Ends& ends_of_rest(SlotId slot, uint32_t begin);
  /// Number that says when a nonterminal's text was found. Of two texts with the same ends, of
  /// which one is a part of the other, the part may be the one that was found earlier.
  uint32_t order(uint32_t nonterminal, uint32_t begin, uint32_t end) const;
  /// Throws GrammarError after too many steps of all kinds.
  void count(uint64_t steps);

 private:
  /// A rule that has begun, and its rest.
  struct Item {
    uint32_t nonterminal = 0;
    SlotId rest = ContextFreeGrammar::kEnd;
    uint32_t begin = 0;
    bool operator==(const Item&) const = default;
  };
  struct Hash {
    size_t operator()(const Item& item) const;
  };
  struct Done {
    Ends ends;
    std::vector<uint32_t> orders;
  };

  static uint64_t key(uint32_t what, uint32_t begin) { return uint64_t{what} << 32 | begin; }
  void parse_from(uint32_t boundary);
  void add(const Item& item, uint32_t boundary);
  void complete(const Item& item, uint32_t boundary);
  void predict(const Item& item, uint32_t boundary);
  const Ends& terminal_ends(uint32_t terminal, uint32_t begin);
  Ends regular_ends(const ContextFreeGrammar::Terminal& terminal, uint32_t begin);
  Ends embedded_ends(Automaton& automaton, uint32_t begin);

  RegexStore& regexes_;
  const ContextFreeGrammar& grammar_;
  const ChartText& text_;
  uint64_t steps_ = 0;
  uint32_t found_ = 0;                                       ///< texts of nonterminals
  std::vector<std::vector<Item>> open_;                      ///< by boundary
  std::unordered_set<Item, Hash> seen_;                      ///< at one boundary
  std::unordered_map<uint64_t, std::vector<Item>> waiting_;  ///< by nonterminal and beginning
  std::unordered_map<uint64_t, Done> done_;                  ///< likewise
  std::unordered_map<uint64_t, Ends> terminals_;             ///< by terminal and beginning
  std::unordered_map<uint64_t, Ends> rests_;                 ///< by slot and beginning
};

}  // namespace specdec
