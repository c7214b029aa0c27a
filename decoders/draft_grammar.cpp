#include "decoders/draft_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

// Tokens of the output that the tokenizer sees before forced bytes: it merges no further back.
constexpr size_t kContextTokens = 8;
// Masks with more tokens than this are not searched for one that goes on where a forced one ends.
constexpr int64_t kMostSearched = 4096;

/// Without the bytes of an unfinished UTF-8 character at the end.
std::string_view whole_characters(std::string_view bytes) {
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Scan scan = scan_utf8(rest);
    if (scan.prefix) {
      return bytes.substr(0, bytes.size() - rest.size());
    }
    rest.remove_prefix(scan.bytes);
  }
  return bytes;
}

/// The bytes as the tokenizer cuts them after the newest tokens of the output.
std::vector<Token> cut(const Tokenizer& tokenizer, TokenSpan output, std::string_view bytes) {
  const TokenSpan before = output.last(std::min(output.size(), kContextTokens));
  std::vector<Token> tokens = tokenizer.encode(tokenizer.decode(before).append(bytes));
  if (tokens.size() >= before.size() && std::equal(before.begin(), before.end(), tokens.begin())) {
    tokens.erase(tokens.begin(), tokens.begin() + std::ssize(before));
    return tokens;
  }
  return tokenizer.encode(bytes);  // the text before is cut in a way of its own
}

/// Whether the mask has a token that begins with these bytes and is longer.
bool allows_longer(const TokenMask& mask, const GrammarVocabulary& vocabulary,
                   std::string_view bytes) {
  if (mask.count() > kMostSearched) {
    return true;
  }
  const std::vector<Token> tokens = mask.tokens();
  return std::any_of(tokens.begin(), tokens.end(), [&](Token token) {
    const std::string_view other = vocabulary.bytes(token);
    return other.size() > bytes.size() && other.starts_with(bytes);
  });
}

}  // namespace

DraftGrammar::DraftGrammar(const GrammarMatcher& root)
    : grammar_(root.grammar()), states_{root.state()} {}

StateId DraftGrammar::state(const Draft& draft, int64_t node) {
  while (std::ssize(states_) <= node) {
    const size_t next = states_.size();
    const StateId before = states_[static_cast<size_t>(draft.parents[next])];
    states_.push_back(before == Automaton::kDead ? before
                                                 : grammar_.next(before, draft.tokens[next]));
  }
  return states_[static_cast<size_t>(node)];
}

TokenMask DraftGrammar::mask(const Draft& draft, int64_t node) {
  return grammar_.mask(state(draft, node));
}

AllowedTokens allowed_by(const TokenMask& mask) {
  if (mask.empty()) {
    return nullptr;
  }
  auto words = std::make_shared<std::vector<uint32_t>>((mask.vocab_size() + 31) / 32);
  mask.write(*words);
  if (mask.vocab_size() % 32 != 0) {  // no logits beyond the mask's vocabulary
    words->back() &= (1U << (mask.vocab_size() % 32)) - 1;
  }
  return words;
}

Freedom freedom_of(const TokenMask& mask) {
  const int64_t count = mask.count();
  if (count == 1) {
    return Freedom::kForced;
  }
  return 2 * count > mask.vocab_size() ? Freedom::kFree : Freedom::kConstrained;
}

Draft without_forbidden(Draft draft, const GrammarMatcher& root) {
  DraftGrammar grammar(root);
  std::vector<int64_t> place(draft.tokens.size(), -1);  // in the draft that is left
  Draft left = Draft::root(draft.tokens.front());
  left.probs = draft.probs;
  left.child_probs = {draft.child_probs.front()};
  place[0] = 0;
  for (int64_t node = 1; node < draft.size(); ++node) {
    const auto index = static_cast<size_t>(node);
    const auto parent = static_cast<size_t>(draft.parents[index]);
    const bool stays = draft.child_probs[parent] >= 0 || grammar.allows(draft, node);
    if (stays && place[parent] >= 0) {
      place[index] = left.add(draft.tokens[index], place[parent]);
      left.child_probs.back() = draft.child_probs[index];
    }
  }
  return left.size() == draft.size() ? std::move(draft) : std::move(left);
}

std::vector<Token> certain_tokens(GrammarMatcher place, int64_t most) {
  std::vector<Token> tokens;
  while (std::ssize(tokens) < most) {
    const Token token = place.mask().single();
    if (token < 0 || place.grammar().is_end(token) || !place.accept(token)) {
      break;
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::vector<Token> forced_tokens(const GrammarMatcher& place, const Tokenizer* tokenizer,
                                 TokenSpan output, int64_t most) {
  std::vector<Token> tokens = certain_tokens(place, most);
  GrammarMatcher after = place;
  std::vector<Token> before(output.begin(), output.end());
  for (const Token token : tokens) {
    (void)after.accept(token);
    before.push_back(token);
  }
  const std::string bytes = after.forced_bytes();
  std::string_view left = whole_characters(bytes);
  if (tokenizer == nullptr || left.empty() || std::ssize(tokens) >= most) {
    return tokens;
  }
  for (const Token token : cut(*tokenizer, before, left)) {
    const std::string_view piece = tokenizer->token_bytes(token);
    const bool last = piece.size() >= left.size();
    if (std::ssize(tokens) >= most || !left.starts_with(piece) ||
        (last && allows_longer(after.mask(), after.grammar().vocabulary(), piece)) ||
        !after.accept(token)) {
      break;
    }
    tokens.push_back(token);
    left.remove_prefix(piece.size());
  }
  return tokens;
}

}  // namespace specdec
