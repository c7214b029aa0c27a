#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/tags/tag_format.h"
#include "grammar/tags/tag_search.h"
#include "grammar/tags/tag_symbols.h"

namespace specdec {

/// A structured text as a network of entries. An entry is what may come next: texts, grammars, free
/// text or the end, each followed by another entry. Immutable but for what is found out late.
class TagProgram {
 public:
  static constexpr uint32_t kNone = ~0U;

  /// A grammar, and what follows its texts.
  struct Grammar {
    size_t automaton = 0;
    TagEntry then = 0;
    /// Copies of one repetition, the earlier ones with larger ids, which may do all that later ones
    /// may. Else its own id.
    uint32_t family = 0;
    bool greedy = false;  ///< free text follows: the grammar goes on as long as it can
  };
  /// Free text, and the texts that end it.
  struct Free {
    TagSearch search;
    bool may_end = false;  ///< the whole text may end in it
  };
  /// All that an entry may begin with.
  struct Start {
    TagTexts texts;
    std::vector<uint32_t> grammars, free;
    bool end = false;
  };

  const Start& start(TagEntry entry) const { return starts_[entry]; }
  const Grammar& grammar(uint32_t id) const { return grammars_[id]; }
  const Free& free(uint32_t id) const { return free_[id]; }
  Automaton& automaton(uint32_t grammar) const { return *automata_[grammars_[grammar].automaton]; }
  const std::vector<std::unique_ptr<Automaton>>& automata() const { return automata_; }
  /// The grammar that the texts of an entry end; kNone: none.
  uint32_t ended_grammar(TagEntry entry) const { return ended_[entry]; }
  /// How many parts lie at least between an entry and the end.
  uint32_t distance(TagEntry entry) const { return distances_[entry]; }
  TagEntry begin() const { return begin_; }
  /// Sorted.
  const std::vector<Token>& named_tokens() const { return named_tokens_; }

 private:
  friend class TagProgramBuilder;

  std::vector<Start> starts_;
  std::vector<uint32_t> ended_, distances_;
  std::vector<Grammar> grammars_;
  std::vector<Free> free_;
  std::vector<std::unique_ptr<Automaton>> automata_;
  std::vector<Token> named_tokens_;
  TagEntry begin_ = 0;
};

/// What a program is made with.
struct TagCompiler {
  /// The automaton of a grammar; it has a start. Throws GrammarError.
  std::function<std::unique_ptr<Automaton>(const TagContent&)> compile;
  /// The token of a name. Throws GrammarError.
  std::function<Token(const std::string&)> require_token;
  std::function<std::optional<Token>(const std::string&)> find_token;
  /// True for tokens after which generation ends. Empty: there are none.
  std::function<bool(Token)> is_end = {};
};

/// Throws GrammarError with the place in the format of what is wrong.
TagProgram make_tag_program(const TagFormat& format, const TagCompiler& compiler);

}  // namespace specdec
