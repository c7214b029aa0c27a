#include "grammar/cfg/end_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "grammar/interruption.h"

namespace specdec {
namespace {

using SlotId = ContextFreeGrammar::SlotId;

/// What may follow the symbols of a grammar.
class Followed {
 public:
  explicit Followed(const ContextFreeGrammar& grammar)
      : grammar_(grammar), has_text_(grammar.nonterminals()), followed_(grammar.nonterminals()) {
    find_texts();
    find_followed();
  }

  /// A slot that `holds` and behind which more than the empty text may come; kEnd for none.
  template <class Holds>
  SlotId find(const Holds& holds) const {
    SlotId found = ContextFreeGrammar::kEnd;
    for_each_slot([&](uint32_t rule, SlotId slot) {
      const bool is_first = found == ContextFreeGrammar::kEnd && holds(slot);
      found = is_first && (followed_[rule] || rest_has_text_[next(slot)]) ? slot : found;
    });
    return found;
  }

 private:
  SlotId next(SlotId slot) const { return grammar_.slot(slot).next; }

  void find_texts() {
    std::vector<std::vector<uint32_t>> users(grammar_.nonterminals());
    std::vector<uint32_t> first;
    for_each_slot([&](uint32_t rule, SlotId slot) {
      const auto symbol = grammar_.slot(slot).symbol;
      if (!symbol.is_terminal) {
        users[symbol.index].push_back(rule);
      } else if (has_text(symbol)) {
        first.push_back(rule);
      }
    });
    spread(has_text_, std::move(first), users);
    rest_has_text_.resize(grammar_.slots());
    for (SlotId slot = 1; slot < rest_has_text_.size(); ++slot) {  // rests have smaller numbers
      rest_has_text_[slot] = rest_has_text_[next(slot)] || has_text(grammar_.slot(slot).symbol);
    }
  }

  void find_followed() {
    std::vector<std::vector<uint32_t>> used(grammar_.nonterminals());
    std::vector<uint32_t> first;
    for_each_slot([&](uint32_t rule, SlotId slot) {
      const auto symbol = grammar_.slot(slot).symbol;
      if (!symbol.is_terminal) {
        used[rule].push_back(symbol.index);
        if (rest_has_text_[next(slot)]) {
          first.push_back(symbol.index);
        }
      }
    });
    spread(followed_, std::move(first), used);
  }

  /// Sets what is open, and whatever that leads to.
  static void spread(std::vector<bool>& holds, std::vector<uint32_t> open,
                     const std::vector<std::vector<uint32_t>>& edges) {
    while (!open.empty()) {
      Interruption::check();
      const uint32_t top = open.back();
      open.pop_back();
      if (!holds[top]) {
        holds[top] = true;
        open.insert(open.end(), edges[top].begin(), edges[top].end());
      }
    }
  }

  bool has_text(ContextFreeGrammar::Symbol symbol) const {
    return symbol.is_terminal ? grammar_.terminal(symbol.index).regex != RegexStore::kEmpty
                              : has_text_[symbol.index];
  }

  /// Each slot of a rule once.
  template <class Visit>
  void for_each_slot(const Visit& visit) const {
    std::vector<uint32_t> last_rule(grammar_.slots(), grammar_.nonterminals());
    for (uint32_t rule = 0; rule < grammar_.nonterminals(); ++rule) {
      for (const SlotId head : grammar_.heads(rule)) {
        for (SlotId slot = head; slot != ContextFreeGrammar::kEnd && last_rule[slot] != rule;
             slot = next(slot)) {
          Interruption::check();
          last_rule[slot] = rule;
          visit(rule, slot);
        }
      }
    }
  }

  const ContextFreeGrammar& grammar_;
  std::vector<bool> has_text_;       ///< by nonterminal: of more than no characters
  std::vector<bool> rest_has_text_;  ///< by slot: the same, of it and what stands behind it
  std::vector<bool> followed_;       ///< by nonterminal: such a text may follow it
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
