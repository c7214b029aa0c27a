#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"

namespace specdec::fuzz {

/// What a fuzzer drew: a grammar's text up to the first zero byte, then which way to go in it.
struct GrammarInput {
  std::string text;
  std::string choices;

  explicit GrammarInput(std::string_view bytes) : text(bytes.substr(0, bytes.find('\0'))) {
    choices = text.size() < bytes.size() ? bytes.substr(text.size() + 1) : "";
  }
  uint8_t choice(size_t i) const {
    return i < choices.size() ? static_cast<uint8_t>(choices[i]) : static_cast<uint8_t>(37 * i);
  }
};

inline void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

/// All bytes and what tokenizers glue together; token 1 ends texts. New for each input: what one
/// input leaves in it must not change what another one does.
inline std::shared_ptr<GrammarVocabulary> fuzz_vocabulary() {
  std::vector<std::string> bytes(2);
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  for (const char* glued :
       {"\",\"",    "\":",        "{\"", "\"}",  "},{", "]]", "10",  "1,",  "true",   "0.",
        "e-",       "\\u00",      "\\u", "\\\"", "aa",  "ab", "abc", "a\"", "b\":\"", "\xC3\xA9",
        "\xF0\x9F", "\x98\x80\"", "  ",  ": ",   ",\n", "[{", "a,",  "\"\""}) {
    bytes.emplace_back(glued);
  }
  constexpr GrammarVocabularyLimits kLimits = {.max_regex_states = 1'000,
                                               .max_string_mask_bytes = 100'000};
  return std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(bytes.begin(), bytes.end()), std::vector<Token>{1}, kLimits);
}

/// A mask allows the tokens that are accepted, no others.
inline void check_mask(const GrammarMatcher& matcher, const TokenMask& mask) {
  for (Token token = 0; token < mask.vocab_size(); ++token) {
    const StateId next = matcher.grammar().next(matcher.state(), token);
    require(mask.allows(token) == (next != Automaton::kDead) || matcher.limit());
  }
}

/// What is forced may come, and a completion, where the grammar knows one, leads to the end.
inline void check_ways(const GrammarMatcher& matcher) {
  const CompiledGrammar& grammar = matcher.grammar();
  require(grammar.next(matcher.state(), matcher.forced_bytes()) != Automaton::kDead ||
          matcher.limit());
  StateId state = matcher.state();
  for (int parts = 0; parts < 1'000; ++parts) {
    const auto way = grammar.completion(state);
    if (grammar.limit(state)) {
      return;
    }
    if (!way || way->empty()) {
      require(!way || grammar.is_complete(state));
      return;
    }
    const StateId next = grammar.next(state, *way);
    if (grammar.limit(state)) {
      return;
    }
    state = next;
    require(state != Automaton::kDead);
  }
  require(false);
}

/// What marked rules matched is found, or too long for it.
inline void check_captures(const GrammarMatcher& matcher) {
  try {
    (void)matcher.captures();
  } catch (const GrammarError&) {
    return;
  }
}

/// Tokens as the input chooses them; no text runs into a dead end.
inline void walk(std::shared_ptr<const CompiledGrammar> grammar, const GrammarInput& input) {
  constexpr size_t kSteps = 40;
  GrammarMatcher matcher(std::move(grammar));
  for (size_t i = 0; i < kSteps && !matcher.is_ended(); ++i) {
    const TokenMask mask = matcher.mask();
    if (matcher.limit()) {
      return;
    }
    require(mask.allows(1) == matcher.is_complete());
    if (i % 8 == 0) {
      check_mask(matcher, mask);
      check_ways(matcher);
      check_captures(matcher);
      (void)matcher.explain();
    }
    const std::vector<Token> tokens = mask.tokens();
    require(!tokens.empty());
    const StateId before = matcher.state();
    const Token token = tokens[input.choice(i) * tokens.size() / 256];
    const bool accepted = matcher.accept(token);
    if (!accepted && matcher.limit()) {
      return;
    }
    require(accepted);
    matcher.rollback(1);
    require(matcher.state() == before && matcher.accept(token));
  }
}

/// Compiles and walks, unless the grammar is refused.
inline void walk(GrammarSource source, const GrammarInput& input) {
  source.text = input.text;
  source.limits = {.max_bytes = 1 << 14,
                   .max_nesting = 200,
                   .max_unrolled = 300,
                   .max_symbols = 5'000,
                   .max_state_items = 1'000};
  source.limits.max_alternatives = 200;
  source.limits.max_steps = 10'000;
  source.limits.max_states = 20'000;
  source.limits.max_mask_bytes = 20'000;  // some are made again
  try {
    walk(compile_grammar(fuzz_vocabulary(), source), input);
  } catch (const Error&) {
    return;
  }
}

}  // namespace specdec::fuzz
