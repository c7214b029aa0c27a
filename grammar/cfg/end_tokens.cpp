#include "grammar/cfg/end_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace specdec {
namespace {

using SlotId = ContextFreeGrammar::SlotId;

/// What may follow the symbols of a grammar.
class Followed {
 public:
  explicit Followed(const ContextFreeGrammar& grammar)
      : grammar_(grammar), has_text_(grammar.nonterminals()), followed_(grammar.nonterminals()) {
    for (bool changed = true; changed;) {
      changed = find_texts();
    }
    for (bool changed = true; changed;) {
      changed = find_followed();
    }
  }

  /// A slot that `holds` and behind which more than the empty text may come; kEnd for none.
  template <class Holds>
  SlotId find(const Holds& holds) const {
    SlotId found = ContextFreeGrammar::kEnd;
    for_each_followed([&](SlotId slot) {
      found = found == ContextFreeGrammar::kEnd && holds(slot) ? slot : found;
    });
    return found;
  }

 private:
  SlotId next(SlotId slot) const { return grammar_.slot(slot).next; }

  bool has_text(ContextFreeGrammar::Symbol symbol) const {
    return symbol.is_terminal ? grammar_.terminal(symbol.index).regex != RegexStore::kEmpty
                              : has_text_[symbol.index];
  }

  bool rest_has_text(SlotId slot) const {
    for (; slot != ContextFreeGrammar::kEnd; slot = next(slot)) {
      if (has_text(grammar_.slot(slot).symbol)) {
        return true;
      }
    }
    return false;
  }

  bool find_texts() {
    bool changed = false;
    for (uint32_t rule = 0; rule < grammar_.nonterminals(); ++rule) {
      const auto heads = grammar_.heads(rule);
      if (!has_text_[rule] && std::any_of(heads.begin(), heads.end(),
                                          [&](SlotId head) { return rest_has_text(head); })) {
        has_text_[rule] = changed = true;
      }
    }
    return changed;
  }

  bool find_followed() {
    bool changed = false;
    for_each_followed([&](SlotId slot) {
      const auto symbol = grammar_.slot(slot).symbol;
      if (!symbol.is_terminal && !followed_[symbol.index]) {
        followed_[symbol.index] = changed = true;
      }
    });
    return changed;
  }

  template <class Visit>
  void for_each_followed(const Visit& visit) const {
    for (uint32_t rule = 0; rule < grammar_.nonterminals(); ++rule) {
      for (const SlotId head : grammar_.heads(rule)) {
        for (SlotId slot = head; slot != ContextFreeGrammar::kEnd; slot = next(slot)) {
          if (followed_[rule] || rest_has_text(next(slot))) {
            visit(slot);
          }
        }
      }
    }
  }

  const ContextFreeGrammar& grammar_;
  std::vector<bool> has_text_;  ///< by nonterminal: of more than no characters
  std::vector<bool> followed_;  ///< by nonterminal: such a text may follow it
};

}  // namespace

void check_end_tokens(const ContextFreeGrammar& grammar, const GrammarText& text) {
  const auto& terminals = grammar.terminals();
  if (std::none_of(terminals.begin(), terminals.end(),
                   [](const auto& terminal) { return terminal.ends_at.has_value(); })) {
    return;
  }
  const auto ends = [&](SlotId slot) {
    return grammar.slot(slot).symbol.is_terminal && grammar.terminal_at(slot).ends_at;
  };
  if (const SlotId slot = Followed(grammar).find(ends); slot != ContextFreeGrammar::kEnd) {
    const auto& token = grammar.terminal_at(slot);
    text.fail(*token.ends_at,
              fmt::format("the token {} ends what is generated, but more may follow it here (also "
                          "what is ignored); let it be the last of a text, or leave it out",
                          token.label));
  }
}

}  // namespace specdec
