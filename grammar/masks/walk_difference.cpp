#include "grammar/masks/walk_difference.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace specdec {

void WalkDifference::run(RegexId from, RegexId to) {
  const TokenTrie& trie = tools_.trie;
  const TokenSpelling& spelling = tools_.spelling;
  std::vector<Pair> path(64);
  path[0] = pair(from, to);
  for (Node node = 1; node < trie.size();) {
    const uint32_t depth = trie.depth(node);
    if (depth + 1 >= path.size()) {
      path.resize(2 * path.size());
    }
    const Pair& before = path[depth - 1];
    const RegexId before_from = before.from;
    const RegexId before_to = before.to;
    const char32_t point = spelling.points[node];
    if (point == TokenSpelling::kQuote) {
      quote(node, closes(before_from), closes(before_to));
    }
    if (point == TokenSpelling::kNothing || point == TokenSpelling::kQuote) {
      node = trie.end(node);
      continue;
    }
    const bool same_inside = before.same_inside || stays_alike(before, node);
    if (skip(before, node, same_inside)) {
      node = trie.end(node);
      continue;
    }
    const RegexId now_from = step(before_from, node, point);
    const RegexId now_to = step(before_to, node, point);
    if (now_to == RegexStore::kNothing && now_from != now_to) {
      clear_below(node, inside_);
      if (spelling.has_quote(node)) {
        clear_below(node, close_);
      }
    }
    if (now_from == now_to || now_to == RegexStore::kNothing) {
      node = trie.end(node);
      continue;
    }
    if (now_from == RegexStore::kNothing) {
      for (const Token token : trie.tokens(node)) {
        set_token(inside_, token, true);
      }
    }
    path[depth] =
        before_from == now_from && before_to == now_to ? path[depth - 1] : pair(now_from, now_to);
    path[depth].same_inside |= same_inside;
    ++node;
  }
}

bool WalkDifference::skip(const Pair& before, Node node, bool same_inside) {
  const TokenTrie& trie = tools_.trie;
  const TokenSpelling& spelling = tools_.spelling;
  const bool has_quote = spelling.has_quote(node);
  if (same_inside && !has_quote) {
    return true;
  }
  const bool high = spelling.points[node] >= TokenSpelling::kPart && trie.byte(node) >= 0xC0;
  if (high && same_above_ascii(before.from, before.to)) {
    return true;
  }
  if (has_quote || before.from == before.to || !stays_inside(before.to, node)) {
    return false;
  }
  if (before.from != RegexStore::kAll) {
    for (const Token token : trie.tokens_below(node)) {
      set_token(inside_, token, has_token(spelling.inside, token));
    }
  }
  return true;
}

const std::optional<Letters>& WalkDifference::never(RegexId language) {
  Facts& facts = facts_[language];
  if (facts.never == nullptr) {
    facts.never = &tools_.letters.never(language);
  }
  return *facts.never;
}

const Letters& WalkDifference::always(RegexId language) {
  Facts& facts = facts_[language];
  if (facts.always == nullptr) {
    facts.always = &tools_.letters.always(language, tools_.spelling.longest);
  }
  return *facts.always;
}

WalkDifference::Pair WalkDifference::pair(RegexId from, RegexId to) {
  Pair result{.from = from, .to = to, .told = false, .differing = {}, .same_inside = false};
  const std::optional<Letters>& left = never(from);
  const std::optional<Letters>& right = never(to);
  if (left && right) {
    result.told = true;
    result.differing.ascii = left->ascii ^ right->ascii;
    result.differing.separators = left->separators != right->separators;
    result.differing.others = left->others != right->others;
    result.same_inside =
        result.differing.ascii.none() && !result.differing.separators && !result.differing.others;
  }
  return result;
}

/// True when no text below the node can tell the languages apart before it closes the string.
bool WalkDifference::stays_alike(const Pair& before, Node node) const {
  if (!before.told) {
    return false;
  }
  const uint32_t set = tools_.spelling.set(node);
  const Letters below = set == 0 ? tools_.spelling.letters_of(node) : tools_.spelling.sets[set];
  const bool whole = set != 0 || tools_.trie.end(node) == node + 1;
  return whole && !below.unclear && (below.ascii & before.differing.ascii).none() &&
         !(below.separators && before.differing.separators) &&
         !(below.others && before.differing.others);
}

void WalkDifference::clear_below(Node node, MaskWords& words) const {
  for (const Token token : tools_.trie.tokens_below(node)) {
    set_token(words, token, false);
  }
}

/// True when all texts of the subtree go on in the language; asked of larger ones only.
bool WalkDifference::stays_inside(RegexId language, Node node) {
  const uint32_t set = tools_.spelling.set(node);
  if (set == 0 || language == RegexStore::kNothing) {
    return false;
  }
  const Letters& below = tools_.spelling.sets[set];
  const Letters& always = this->always(language);
  return !below.unclear && (below.ascii & ~always.ascii).none() &&
         (always.separators || !below.separators) && (always.others || !below.others);
}

bool WalkDifference::closes(RegexId language) const {
  return language != RegexStore::kNothing && tools_.regexes.matches_empty(language);
}

RegexId WalkDifference::step(RegexId language, Node node, char32_t point) {
  if (language == RegexStore::kNothing || language == RegexStore::kAll) {
    return language;
  }
  if (point < TokenSpelling::kPart) {
    return tools_.regexes.next(language, point);
  }
  const High& high = above_ascii(language);
  const bool utf8 = tools_.trie.byte(node) >= 0x80;
  if (utf8 && (high.one || high.always)) {
    return high.always || high.target != RegexStore::kNothing ? language : RegexStore::kNothing;
  }
  const auto reach = tools_.spelling.parts[point - TokenSpelling::kPart].reach(tools_.escapes);
  return tools_.regexes.goes_on(language, reach) ? language : RegexStore::kNothing;
}

const WalkDifference::High& WalkDifference::above_ascii(RegexId language) {
  std::optional<High>& high = facts_[language].high;
  if (high) {
    return *high;
  }
  high = High();
  if (language != RegexStore::kNothing) {
    const auto all = tools_.regexes.transitions(language);
    const auto first =
        std::find_if(all.begin(), all.end(), [](const auto& part) { return part.last >= 0x80; });
    // Surrogates stand alone and have nothing after them.
    high->one = std::all_of(first, all.end(), [&](const auto& part) {
      return part.target == first->target || part.last == 0xDFFF;
    });
    high->always = std::all_of(first, all.end(), [&](const auto& part) {
      return part.target != RegexStore::kNothing || part.last == 0xDFFF;
    });
    high->target = first->target;
  }
  return *high;
}

bool WalkDifference::same_above_ascii(RegexId a, RegexId b) {
  if (a == b) {
    return true;
  }
  const High left = a == RegexStore::kNothing ? High{true, false, a} : above_ascii(a);
  const High right = b == RegexStore::kNothing ? High{true, false, b} : above_ascii(b);
  return left.one && right.one && left.target == right.target;
}

void WalkDifference::quote(Node node, bool before, bool now) {
  if (before != now) {
    for (const Token token : tools_.trie.tokens_below(node)) {
      set_token(close_, token, now);
    }
  }
}

}  // namespace specdec
