#include "grammar/canonical/canonical_masks.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

namespace specdec {
namespace {

constexpr size_t kFew = 1024;            ///< tokens that a mask lists one by one
constexpr size_t kInTrieOrder = 4096;    ///< tokens from which on shared beginnings are walked once
constexpr uint64_t kLongestToken = 256;  ///< characters
constexpr size_t kMaxSearched = size_t{1} << 17U;  ///< remembered; all are dropped beyond
/// Bytes that most often begin a new token.
constexpr std::string_view kFirstTried = "\",:}] ({[0a";

size_t count(const MaskWords& words) {
  size_t total = 0;
  for (const uint32_t word : words) {
    total += static_cast<size_t>(std::popcount(word));
  }
  return total;
}

std::vector<Token> tokens_of(const MaskWords& words) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint32_t rest = words[i]; rest != 0; rest &= rest - 1) {
      tokens.push_back(static_cast<Token>(i * 32) + std::countr_zero(rest));
    }
  }
  return tokens;
}

bool contains(const std::vector<Token>& sorted, Token token) {
  return std::binary_search(sorted.begin(), sorted.end(), token);
}

/// True when the string tells `name` from others.
bool is_listed(const OpenString& string, std::string_view name) {
  return std::ranges::any_of(
      string.words, [&](const OpenString::Word& word) { return to_utf8(word.rest) == name; });
}

/// The state after the quote of a string that is like most; kDead when none is known.
StateId closed_of(const OpenString& string) {
  for (const OpenString::Part& part : string.parts) {
    if (part.closed != Automaton::kDead) {
      return part.closed;
    }
  }
  return Automaton::kDead;
}

}  // namespace

size_t CanonicalMasks::Hash::operator()(const CutState& at) const {
  return WordHash().add(uint64_t{at.state} << 32 | at.left).value();
}

CanonicalMasks::CanonicalMasks(const VocabularyTokens& tokens, RegexStore& regexes,
                               CanonicalCuts& cuts, Automaton& automaton, BaseMask base)
    : tokens_(tokens),
      regexes_(regexes),
      cuts_(cuts),
      automaton_(automaton),
      string_states_(automaton.string_states()),
      base_(std::move(base)),
      named_tokens_(automaton.named_tokens()) {
  cut_states_.add({});  // kDead
}

StateId CanonicalMasks::intern(const CutState& at) {
  return at.state == Automaton::kDead ? Automaton::kDead : cut_states_.intern(at);
}

size_t CanonicalMasks::Next::count() const {
  return words.empty() ? few.size() : specdec::count(words);
}

StateId CanonicalMasks::walk(StateId state, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != Automaton::kDead; ++i) {
    state = automaton_.next(state, static_cast<uint8_t>(bytes[i]));
  }
  return state;
}

CanonicalMasks::CutState CanonicalMasks::after(const CutState& at, Token token) {
  return {automaton_.end_token(walk(at.state, tokens_.bytes(token))), cuts_.next(at.left, token)};
}

StateId CanonicalMasks::next(StateId id, Token token) {
  return intern(after(cut_state(id), token));
}

TokenMask::Content CanonicalMasks::build(StateId id) {
  const CutState here = cut_state(id);
  Next next = next_of(here);
  std::vector<Token> dead = dead_among(here, doubtful(here, next));
  std::sort(dead.begin(), dead.end());
  Content content;
  if (dead.size() == next.count() && next.ends.empty()) {
    // A way on exists but lies beyond the search, or only through pieces that no text may have.
    if (next.count() == 0) {
      content = *base_(here.state);
      content.is_fallback = true;
      return content;
    }
    dead.clear();
    content.is_fallback = true;
  }
  content.added = next.ends;
  if (next.words.empty()) {
    std::copy_if(next.few.begin(), next.few.end(), std::back_inserter(content.added),
                 [&](Token token) { return !contains(dead, token); });
    std::sort(content.added.begin(), content.added.end());
    return content;
  }
  for (const Token token : dead) {
    set_token(next.words, token, false);
  }
  content.base = std::make_shared<const MaskWords>(std::move(next.words));
  return content;
}

CanonicalMasks::Next CanonicalMasks::next_of(const CutState& at) {
  const std::shared_ptr<const Content> base = base_(at.state);
  const std::shared_ptr<const MaskWords> allowed = cuts_.allowed_after(at.left);
  Next next;
  for (const Token token : base->added) {
    if (contains(tokens_.end_tokens(), token) || contains(named_tokens_, token)) {
      next.ends.push_back(token);
    } else if (has_token(*allowed, token)) {
      next.few.push_back(token);
    }
  }
  if (base->base == nullptr && next.few.size() <= kFew) {
    return next;
  }
  next.words.resize(allowed->size());
  for (size_t i = 0; base->base != nullptr && i < next.words.size(); ++i) {
    next.words[i] = (*allowed)[i] & (*base->base)[i];
  }
  for (const Token token : base->removed) {
    set_token(next.words, token, false);
  }
  for (const Token token : std::exchange(next.few, {})) {
    set_token(next.words, token);
  }
  if (count(next.words) <= kFew) {
    next.few = tokens_of(std::exchange(next.words, {}));
  }
  return next;
}

/// Inside a string of any characters a token is alive after which one of these begins a new token.
CanonicalMasks::Doubtful CanonicalMasks::doubtful(const CutState& at, const Next& next) {
  Doubtful result;
  OpenString string;
  const MaskWords* sure = nullptr;
  if (string_states_ != nullptr && string_states_->describe(at.state, string) &&
      string.decoder.idle()) {
    const bool is_free = std::ranges::any_of(string.parts, [](const OpenString::Part& part) {
      return part.language == RegexStore::kAll && part.max > kLongestToken;
    });
    const bool told_apart =
        !string.words.empty() || std::ranges::any_of(string.parts, [](const auto& part) {
          return part.is_name || part.text_matters;
        });
    sure = is_free ? &cuts_.loose() : nullptr;
    result.told_apart = told_apart;
    result.string = std::move(string);
  }
  const auto is_sure = [&](Token token) {
    return (sure != nullptr && has_token(*sure, token)) ||
           (result.string && leaves_room(*result.string, token));
  };
  if (next.words.empty()) {
    std::remove_copy_if(next.few.begin(), next.few.end(), std::back_inserter(result.tokens),
                        is_sure);
    return result;
  }
  MaskWords open = next.words;
  for (size_t i = 0; sure != nullptr && i < open.size(); ++i) {
    open[i] &= ~(*sure)[i];
  }
  result.tokens = tokens_of(open);
  std::erase_if(result.tokens, is_sure);
  if (result.tokens.size() >= kInTrieOrder) {
    const auto all = cuts_.trie().tokens_below(0);
    MaskWords rest(open.size());
    for (const Token token : std::exchange(result.tokens, {})) {
      set_token(rest, token);
    }
    std::copy_if(all.begin(), all.end(), std::back_inserter(result.tokens),
                 [&](Token token) { return has_token(rest, token); });
  }
  return result;
}

std::vector<Token> CanonicalMasks::dead_among(const CutState& at, const Doubtful& doubtful) {
  std::vector<Token> dead;
  std::vector<StateId> path = {at.state};  // after the bytes of the token before
  std::string_view before;
  for (const Token token : doubtful.tokens) {
    const std::string_view bytes = tokens_.bytes(token);
    const CanonicalCuts::LeftId left = cuts_.next(at.left, token);
    const auto told =
        doubtful.string ? alive_by_language({at.state, left}, doubtful, token) : std::nullopt;
    if (told) {
      if (!*told) {
        dead.push_back(token);
      }
      continue;
    }
    const auto shared = std::mismatch(bytes.begin(), bytes.end(), before.begin(), before.end());
    auto at = static_cast<size_t>(shared.first - bytes.begin());
    path.resize(at + 1);
    for (; at < bytes.size(); ++at) {
      path.push_back(walk(path.back(), bytes.substr(at, 1)));
    }
    before = bytes;
    const StateId ended = automaton_.end_token(path.back());
    if (ended == Automaton::kDead || !is_alive({ended, left}, kDepth)) {
      dead.push_back(token);
    }
  }
  return dead;
}

/// True where any characters may come and another one after the token's.
bool CanonicalMasks::leaves_room(const OpenString& string, Token token) const {
  if (!has_token(cuts_.loose(), token)) {
    return false;
  }
  const std::string_view bytes = tokens_.bytes(token);
  const auto characters =
      static_cast<uint64_t>(std::count_if(bytes.begin(), bytes.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
      }));
  return std::ranges::any_of(string.parts, [&](const OpenString::Part& part) {
    return part.language == RegexStore::kAll && characters < part.max;
  });
}

/// What of a string's tokens can be told without a state for its text: from the languages that it
/// may be of, and from what follows the quote of most. A list of unique items may be narrower.
std::optional<bool> CanonicalMasks::alive_by_language(const CutState& at, const Doubtful& doubtful,
                                                      Token token) {
  const OpenString& string = *doubtful.string;
  const std::string_view bytes = tokens_.bytes(token);
  const size_t quote = bytes.find('"');
  if (bytes.find('\\') != bytes.npos || is_listed(string, bytes.substr(0, quote))) {
    return std::nullopt;
  }
  if (quote == bytes.npos) {
    const bool goes_on = has_token(cuts_.inner(), token) &&
                         goes_on_inside(string, bytes, ~cuts_.roughly_joining_bytes(at.left));
    return goes_on ? std::optional(true) : std::nullopt;
  }
  const StateId closed = doubtful.told_apart ? closed_of(string) : StateId{Automaton::kDead};
  const StateId state = automaton_.end_token(walk(closed, bytes.substr(quote + 1)));
  return state == Automaton::kDead ? std::nullopt
                                   : std::optional(is_alive({state, at.left}, kDepth));
}

/// True when a free byte may come after `bytes`.
bool CanonicalMasks::goes_on_inside(const OpenString& string, std::string_view bytes,
                                    const Automaton::Bytes& free) {
  const std::u32string points = to_code_points(bytes);
  return std::ranges::any_of(string.parts, [&](const OpenString::Part& part) {
    RegexId language = part.language;
    for (const char32_t point : points) {
      language = regexes_.next(language, point);
    }
    if (language == RegexStore::kNothing || points.size() > part.max) {
      return false;
    }
    for (char c = ' '; c <= '~' && points.size() < part.max; ++c) {
      if (free[static_cast<uint8_t>(c)] && c != '"' && c != '\\' &&
          regexes_.next(language, static_cast<char32_t>(c)) != RegexStore::kNothing) {
        return true;
      }
    }
    return free['"'] && part.closed != Automaton::kDead && points.size() >= part.min &&
           regexes_.matches_empty(language);
  });
}

bool CanonicalMasks::is_alive(const CutState& at, int depth) {
  return automaton_.is_complete(at.state) || some_byte_is_free(at) ||
         (!named_tokens_.empty() && !automaton_.tokens(at.state).empty()) ||
         (depth > 0 && some_token_is_alive(at, depth - 1));
}

bool CanonicalMasks::some_byte_is_free(const CutState& at) {
  const auto leads_on = [&](const Automaton::Bytes& bytes, uint8_t byte) {
    return bytes[byte] && automaton_.next(at.state, byte) != Automaton::kDead;
  };
  const auto some_of = [&](Automaton::Bytes bytes) {
    for (const char byte : kFirstTried) {
      if (leads_on(bytes, static_cast<uint8_t>(byte))) {
        return true;
      }
      bytes.reset(static_cast<uint8_t>(byte));
    }
    for (size_t byte = 0; byte < bytes.size(); ++byte) {
      if (leads_on(bytes, static_cast<uint8_t>(byte))) {
        return true;
      }
    }
    return false;
  };
  const Automaton::Bytes candidates = automaton_.candidates(at.state);
  const CanonicalCuts::Bytes roughly = cuts_.roughly_joining_bytes(at.left);
  return some_of(candidates & ~roughly) ||
         some_of(candidates & roughly & ~cuts_.joining_bytes(at.left));
}

bool CanonicalMasks::some_token_is_alive(const CutState& at, int depth) {
  auto& searched = searched_[static_cast<size_t>(depth)];
  const uint64_t key = uint64_t{at.state} << 32 | at.left;
  if (const auto known = searched.find(key); known != searched.end()) {
    return known->second;
  }
  const Next next = next_of(at);
  const Doubtful open = next.count() <= kWidth ? doubtful(at, next) : Doubtful();
  const bool alive = next.count() <= kWidth &&
                     (open.tokens.size() < next.count() ||
                      std::any_of(open.tokens.begin(), open.tokens.end(), [&](Token token) {
                        const CutState there = after(at, token);
                        return there.state != Automaton::kDead && is_alive(there, depth);
                      }));
  if (searched.size() > kMaxSearched) {
    searched.clear();
  }
  searched.emplace(key, alive);
  return alive;
}

}  // namespace specdec
