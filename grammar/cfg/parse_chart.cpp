#include "grammar/cfg/parse_chart.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/regex/utf8_decoder.h"
#include "grammar/tables/hash.h"

namespace specdec {
namespace {

constexpr uint64_t kMaxSteps = 24'000'000;
constexpr uint64_t kItemSteps = 8;
constexpr uint32_t kMaxParts = 20'000;  ///< of a production: calls nest that deep

/// Throws GrammarError when a production is too long.
void check_lengths(const ContextFreeGrammar& grammar) {
  std::vector<uint32_t> lengths(grammar.slots());
  for (ContextFreeGrammar::SlotId slot = 1; slot < lengths.size(); ++slot) {
    lengths[slot] = lengths[grammar.slot(slot).next] + 1;  // a rest is numbered before the whole
    if (lengths[slot] > kMaxParts) {
      throw GrammarError(
          fmt::format("captures cannot be found where a rule has more than {} parts in a row; use "
                      "'*', or split the rule",
                      kMaxParts));
    }
  }
}

}  // namespace

ChartText::ChartText(std::span<const TextPart> parts) {
  Utf8Decoder utf8;
  for (const TextPart& part : parts) {
    const size_t before = bytes.size();
    bytes += part.bytes;
    for (size_t i = 0; !part.named && i < part.bytes.size(); ++i) {
      std::optional<char32_t> point;
      SPECDEC_CHECK(utf8.take(static_cast<uint8_t>(part.bytes[i]), point), "no UTF-8");
      if (point) {
        units.push_back({*point, std::nullopt});
        offsets.push_back(before + i + 1);
        token_ends.push_back(false);
      }
    }
    if (part.named) {
      units.push_back({0, part.named});
      offsets.push_back(bytes.size());
      token_ends.push_back(false);
    }
    token_ends.back() = token_ends.back() || (part.ends_token && utf8.idle());
  }
}

size_t ParseChart::Hash::operator()(const Item& item) const {
  return WordHash().add(key(item.nonterminal, item.rest)).add(item.begin).value();
}

ParseChart::ParseChart(RegexStore& regexes, const ContextFreeGrammar& grammar,
                       const ChartText& text)
    : regexes_(regexes), grammar_(grammar), text_(text), open_(text.boundaries()) {
  check_lengths(grammar);
  for (const SlotId body : grammar_.bodies(0)) {
    open_[0].push_back({0, body, 0});
  }
  for (uint32_t boundary = 0; boundary < text_.boundaries(); ++boundary) {
    parse_from(boundary);
  }
}

void ParseChart::count(uint64_t steps) {
  Interruption::check();
  steps_ += steps;
  if (steps_ > kMaxSteps) {
    throw GrammarError(
        fmt::format("the captures of a text of {} bytes take more than {} steps to find; ask for "
                    "those of shorter texts, write repetitions with '*' instead of rules that "
                    "contain themselves, or write the rules less ambiguously",
                    text_.bytes.size(), kMaxSteps));
  }
}

void ParseChart::add(const Item& item, uint32_t boundary) {
  count(kItemSteps);
  open_[boundary].push_back(item);
}

void ParseChart::parse_from(uint32_t boundary) {
  seen_.clear();
  while (!open_[boundary].empty()) {
    const Item item = open_[boundary].back();
    open_[boundary].pop_back();
    if (!seen_.insert(item).second) {
      continue;
    }
    if (item.rest == ContextFreeGrammar::kEnd) {
      complete(item, boundary);
      continue;
    }
    const ContextFreeGrammar::Slot slot = grammar_.slot(item.rest);
    if (!slot.symbol.is_terminal) {
      predict(item, boundary);
      continue;
    }
    for (const uint32_t end : terminal_ends(slot.symbol.index, boundary)) {
      add({item.nonterminal, slot.next, item.begin}, end);
    }
  }
  std::vector<Item>().swap(open_[boundary]);
}

void ParseChart::complete(const Item& item, uint32_t boundary) {
  Done& done = done_[key(item.nonterminal, item.begin)];
  done.ends.push_back(boundary);
  done.orders.push_back(found_++);
  for (const Item& waiting : waiting_[key(item.nonterminal, item.begin)]) {
    add({waiting.nonterminal, grammar_.slot(waiting.rest).next, waiting.begin}, boundary);
  }
}

void ParseChart::predict(const Item& item, uint32_t boundary) {
  const ContextFreeGrammar::Slot slot = grammar_.slot(item.rest);
  const uint64_t here = key(slot.symbol.index, boundary);
  std::vector<Item>& waiting = waiting_[here];
  if (waiting.empty()) {
    for (const SlotId body : grammar_.bodies(slot.symbol.index)) {
      add({slot.symbol.index, body, boundary}, boundary);
    }
  }
  waiting.push_back(item);
  if (const auto done = done_.find(here); done != done_.end()) {  // has an empty text
    add({item.nonterminal, slot.next, item.begin}, boundary);
  }
}

// ---- Ends --------------------------------------------------------------------------------------

const ParseChart::Ends& ParseChart::terminal_ends(uint32_t terminal, uint32_t begin) {
  const auto [known, is_new] = terminals_.try_emplace(key(terminal, begin));
  if (is_new) {
    const ContextFreeGrammar::Terminal& what = grammar_.terminal(terminal);
    if (what.token) {
      if (begin < text_.units.size() && text_.units[begin].token == what.token) {
        known->second = {begin + 1};
      }
    } else {
      known->second = what.automaton != nullptr ? embedded_ends(*what.automaton, begin)
                                                : regular_ends(what, begin);
    }
  }
  return known->second;
}

ParseChart::Ends ParseChart::regular_ends(const ContextFreeGrammar::Terminal& terminal,
                                          uint32_t begin) {
  Ends ends;
  RegexId rest = terminal.regex;
  uint32_t tokens = 0;
  for (uint32_t at = begin; rest != RegexStore::kNothing; ++at) {
    if (regexes_.matches_empty(rest)) {
      ends.push_back(at);
    }
    tokens += at > begin && text_.token_ends[at] ? 1 : 0;
    const bool is_full = terminal.max_tokens > 0 && tokens >= terminal.max_tokens;
    if (is_full || at == text_.units.size() || text_.units[at].token) {
      break;
    }
    count(1);
    rest = regexes_.next(rest, text_.units[at].point);
  }
  return ends;
}

ParseChart::Ends ParseChart::embedded_ends(Automaton& automaton, uint32_t begin) {
  Ends ends;
  StateId state = automaton.start();
  for (uint32_t at = begin; at < text_.units.size() && !text_.units[at].token; ++at) {
    for (size_t i = text_.offsets[at]; i < text_.offsets[at + 1] && state != Automaton::kDead;
         ++i) {
      state = automaton.next(state, static_cast<uint8_t>(text_.bytes[i]));
    }
    if (state == Automaton::kDead) {
      break;
    }
    count(1);
    if (automaton.is_complete(state)) {
      ends.push_back(at + 1);
    }
  }
  return ends;
}

const ParseChart::Ends& ParseChart::ends(Symbol symbol, uint32_t begin) {
  static const Ends kNone;
  if (symbol.is_terminal) {
    return terminal_ends(symbol.index, begin);
  }
  const auto done = done_.find(key(symbol.index, begin));
  return done == done_.end() ? kNone : done->second.ends;
}

const ParseChart::Ends& ParseChart::ends_of_rest(SlotId slot, uint32_t begin) {
  const uint64_t here = key(slot, begin);
  if (const auto known = rests_.find(here); known != rests_.end()) {
    return known->second;
  }
  Ends all;
  if (slot == ContextFreeGrammar::kEnd) {
    all.push_back(begin);
  } else {
    const ContextFreeGrammar::Slot at = grammar_.slot(slot);
    for (const uint32_t end : ends(at.symbol, begin)) {
      const Ends& more = ends_of_rest(at.next, end);
      count(1 + more.size());
      all.insert(all.end(), more.begin(), more.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }
  return rests_.emplace(here, std::move(all)).first->second;
}

uint32_t ParseChart::order(uint32_t nonterminal, uint32_t begin, uint32_t end) const {
  const Done& done = done_.at(key(nonterminal, begin));
  const auto at = std::lower_bound(done.ends.begin(), done.ends.end(), end) - done.ends.begin();
  return done.orders[static_cast<size_t>(at)];
}

}  // namespace specdec
