#include "grammar/cfg/captures.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "grammar/tables/components.h"

namespace specdec {
namespace {

using Grammar = ContextFreeGrammar;
using SlotId = Grammar::SlotId;

constexpr uint64_t kBytesPerStep = 16;  ///< rules within rules report the same text many times

/// A symbol's text, from boundary to boundary.
struct Part {
  Grammar::Symbol symbol;
  uint32_t begin = 0;
  uint32_t end = 0;
};
using Parts = std::vector<Part>;

/// For each nonterminal the number of a group: nonterminals whose texts may be all of one another's
/// are in one.
std::vector<uint32_t> groups_of(const Grammar& grammar) {
  std::vector<std::vector<uint32_t>> edges(grammar.nonterminals());
  for (uint32_t nonterminal = 0; nonterminal < edges.size(); ++nonterminal) {
    for (const SlotId body : grammar.bodies(nonterminal)) {
      std::vector<Grammar::Symbol> symbols;
      for (SlotId at = body; at != Grammar::kEnd; at = grammar.slot(at).next) {
        symbols.push_back(grammar.slot(at).symbol);
      }
      const auto needed = std::ranges::count_if(
          symbols, [&](Grammar::Symbol symbol) { return !grammar.is_nullable(symbol); });
      for (const Grammar::Symbol symbol : symbols) {
        if (!symbol.is_terminal && needed <= (grammar.is_nullable(symbol) ? 0 : 1)) {
          edges[nonterminal].push_back(symbol.index);
        }
      }
    }
  }
  std::vector<uint32_t> groups(edges.size());
  uint32_t number = 0;
  for (const std::vector<uint32_t>& component : components_of(edges)) {
    for (const uint32_t nonterminal : component) {
      groups[nonterminal] = number;
    }
    ++number;
  }
  return groups;
}

/// Chooses one reading of a text, from its whole to its parts.
class Reading {
 public:
  Reading(RegexStore& regexes, const Grammar& grammar, const ChartText& text)
      : grammar_(grammar),
        chart_(regexes, grammar, text),
        groups_(groups_of(grammar)),
        is_repeat_(grammar.nonterminals()) {
    for (const uint32_t nonterminal : grammar_.marks().repeats) {
      is_repeat_[nonterminal] = true;
    }
  }

  void count(uint64_t steps) { chart_.count(steps); }

  bool matches(const Part& part) {
    return contains(chart_.ends(part.symbol, part.begin), part.end);
  }

  /// The parts of a nonterminal's text.
  Parts parts_of(const Part& whole) {
    const bool is_chain = is_repeat_[whole.symbol.index] && whole.begin < whole.end;
    Parts parts = is_chain
                      ? chain(whole)
                      : one_of(whole, grammar_.bodies(whole.symbol.index), whole.begin, whole.end);
    SPECDEC_CHECK(!parts.empty() || whole.begin == whole.end, "a rule's text without a reading");
    return parts;
  }

 private:
  static bool contains(const ParseChart::Ends& ends, uint32_t end) {
    return std::binary_search(ends.begin(), ends.end(), end);
  }

  /// A part that is all of the whole must not need the whole itself.
  bool may_be(const Part& part, const Part& whole) const {
    const bool is_all = part.begin == whole.begin && part.end == whole.end;
    return !is_all || part.symbol.is_terminal ||
           groups_[part.symbol.index] != groups_[whole.symbol.index] ||
           chart_.order(part.symbol.index, part.begin, part.end) <
               chart_.order(whole.symbol.index, whole.begin, whole.end);
  }

  /// The rest of a production as a part of the whole: each part as long as it can be. False, and
  /// `parts` as before, when it is none.
  bool split(const Part& whole, SlotId rest, uint32_t begin, uint32_t end, Parts& parts) {
    if (rest == Grammar::kEnd) {
      return begin == end;
    }
    const Grammar::Slot slot = grammar_.slot(rest);
    const ParseChart::Ends& ends = chart_.ends(slot.symbol, begin);
    const auto first = std::upper_bound(ends.begin(), ends.end(), end);
    for (auto at = std::make_reverse_iterator(first); at != ends.rend(); ++at) {
      chart_.count(1);
      const Part part = {slot.symbol, begin, *at};
      if (!contains(chart_.ends_of_rest(slot.next, *at), end) || !may_be(part, whole)) {
        continue;
      }
      parts.push_back(part);
      if (split(whole, slot.next, *at, end, parts)) {
        return true;
      }
      parts.pop_back();
    }
    return false;
  }

  /// The best of some productions' rests.
  Parts one_of(const Part& whole, std::span<const SlotId> rests, uint32_t begin, uint32_t end) {
    Parts best;
    for (const SlotId rest : rests) {
      Parts parts;
      if (split(whole, rest, begin, end, parts) && (best.empty() || is_longer(parts, best))) {
        best = std::move(parts);
      }
    }
    return best;
  }

  static bool is_longer(const Parts& a, const Parts& b) {
    const auto end_of = [](const Part& part) { return part.end; };
    return std::ranges::lexicographical_compare(b, a, {}, end_of, end_of);
  }

  /// What a left-recursive nonterminal repeats, the first one as long as it can be.
  Parts chain(const Part& whole) {
    std::vector<SlotId> elements;
    for (const SlotId body : grammar_.bodies(whole.symbol.index)) {
      const bool is_more = body != Grammar::kEnd && !grammar_.slot(body).symbol.is_terminal &&
                           grammar_.slot(body).symbol.index == whole.symbol.index;
      if (is_more) {
        elements.push_back(grammar_.slot(body).next);
      }
    }
    std::map<uint32_t, ParseChart::Ends> untried;  // by boundary: where its element may end
    std::vector<std::pair<uint32_t, Parts>> path;  // where elements end, and what they are
    uint32_t at = whole.begin;
    while (at < whole.end) {
      const auto [open, is_new] = untried.try_emplace(at);
      if (is_new) {
        open->second = element_ends(elements, at, whole.end);
      }
      if (open->second.empty()) {
        SPECDEC_CHECK(!path.empty(), "a repetition without a reading");
        path.pop_back();
        at = path.empty() ? whole.begin : path.back().first;
        continue;
      }
      const uint32_t end = open->second.back();
      open->second.pop_back();
      Parts parts = one_of(whole, elements, at, end);
      if (!parts.empty()) {
        path.emplace_back(end, std::move(parts));
        at = end;
      }
    }
    Parts all;
    for (const auto& [end, parts] : path) {
      all.insert(all.end(), parts.begin(), parts.end());
    }
    return all;
  }

  /// Where one of the elements that begins at `begin` may end, behind it and up to `last`;
  /// ascending.
  ParseChart::Ends element_ends(const std::vector<SlotId>& elements, uint32_t begin,
                                uint32_t last) {
    ParseChart::Ends ends;
    for (const SlotId element : elements) {
      for (const uint32_t end : chart_.ends_of_rest(element, begin)) {
        if (end > begin && end <= last) {
          ends.push_back(end);
        }
      }
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    return ends;
  }

  const Grammar& grammar_;
  ParseChart chart_;
  std::vector<uint32_t> groups_;
  std::vector<bool> is_repeat_;
};

/// Reports the marked rules of a reading.
class Finder {
 public:
  Finder(RegexStore& regexes, const Grammar& grammar, const ChartText& text, uint32_t given)
      : regexes_(regexes), text_(text), given_(given), reading_(regexes, grammar, text) {
    for (const Grammar::Mark& mark : grammar.marks().captures) {
      marks_[mark.nonterminal] = &mark;
    }
  }

  std::vector<Capture> find() {
    const Part whole = {{false, 0}, 0, text_.boundaries() - 1};
    if (!reading_.matches(whole)) {
      return {};
    }
    std::vector<Step> open = {{whole}};
    while (!open.empty()) {
      const Step step = open.back();
      open.pop_back();
      step.leaves ? leave(step) : enter(step, open);
    }
    std::erase_if(found_, [](const Found& found) { return found.end == kLater; });
    for (const Found& found : found_) {  // before any is copied
      reading_.count(bytes_of(found).size() / kBytesPerStep);
    }
    std::vector<Capture> captures;
    for (const Found& found : found_) {
      captures.push_back({*found.name, std::string(bytes_of(found))});
    }
    return captures;
  }

 private:
  /// The beginning of a part, or the end of one that is marked.
  struct Step {
    Part part;
    bool leaves = false;
    size_t found = 0;  ///< its place in found_
  };
  struct Found {
    const std::string* name = nullptr;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  static constexpr uint32_t kLater = ~0U;

  std::string_view bytes_of(const Found& found) const {
    const size_t begin = text_.offsets[found.begin];
    return std::string_view(text_.bytes).substr(begin, text_.offsets[found.end] - begin);
  }

  const Grammar::Mark* mark_of(const Part& part) const {
    const auto mark = part.symbol.is_terminal ? marks_.end() : marks_.find(part.symbol.index);
    return mark == marks_.end() ? nullptr : mark->second;
  }

  void enter(const Step& step, std::vector<Step>& open) {
    const Part& part = step.part;
    const Grammar::Mark* mark = mark_of(part);
    if (mark != nullptr && mark->is_ignored) {
      return;
    }
    if (part.symbol.is_terminal) {
      read_ = part.end > part.begin ? part.end : read_;
      return;
    }
    if (mark != nullptr) {
      open.push_back({part, true, found_.size()});
      found_.push_back({&mark->name, part.begin, kLater});
    }
    const Parts parts = reading_.parts_of(part);
    std::transform(parts.rbegin(), parts.rend(), std::back_inserter(open),
                   [](const Part& inner) { return Step{inner}; });
  }

  void leave(const Step& step) {
    const Part& part = step.part;
    if (part.end > given_) {
      return;
    }
    const uint32_t end = std::max(part.begin, std::min(read_, part.end));
    found_[step.found].end = without_suffix(*mark_of(part), part.begin, end);
  }

  /// Where the longest suffix begins.
  uint32_t without_suffix(const Grammar::Mark& mark, uint32_t begin, uint32_t end) {
    if (mark.suffix == RegexStore::kNothing) {
      return end;
    }
    RegexId body = mark.body;
    for (uint32_t at = begin; at < end; ++at) {
      if (regexes_.matches_empty(body) && is_suffix(mark.suffix, at, end)) {
        return at;
      }
      body = regexes_.next(body, text_.units[at].point);
    }
    return end;
  }

  bool is_suffix(RegexId suffix, uint32_t at, uint32_t end) {
    for (; at < end && suffix != RegexStore::kNothing; ++at) {
      suffix = regexes_.next(suffix, text_.units[at].point);
    }
    return regexes_.matches_empty(suffix);
  }

  RegexStore& regexes_;
  const ChartText& text_;
  uint32_t given_;
  Reading reading_;
  std::map<uint32_t, const Grammar::Mark*> marks_;  ///< by nonterminal
  std::vector<Found> found_;
  uint32_t read_ = 0;  ///< behind the last text that is not ignored
};

}  // namespace

std::vector<Capture> find_captures(RegexStore& regexes, const ContextFreeGrammar& grammar,
                                   const ChartText& text, uint32_t given) {
  return Finder(regexes, grammar, text, given).find();
}

}  // namespace specdec
