#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {

/// Expects that, on some way through the grammar, every token of the masks, and no other, leads on.
inline void expect_masks_are_steps(const CompiledGrammar& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  const GrammarVocabulary& vocabulary = grammar.vocabulary();
  StateId state = grammar.start();
  for (int step = 0; step < 30 && state != Automaton::kDead; ++step) {
    const TokenMask mask = grammar.mask(state);
    ASSERT_EQ(mask.allows(kTinyEnd), grammar.is_complete(state));
    std::vector<StateId> next;
    for (Token token = 2; token < grammar.vocab_size(); ++token) {
      const StateId after = grammar.next(state, vocabulary.bytes(token));
      ASSERT_EQ(mask.allows(token), after != Automaton::kDead)
          << "step " << step << " token " << vocabulary.bytes(token);
      if (after != Automaton::kDead) {
        next.push_back(after);
      }
    }
    ASSERT_EQ(grammar.limit(state), std::nullopt);
    ASSERT_TRUE(!next.empty() || grammar.is_complete(state));
    state = next.empty() ? Automaton::kDead : next[random() % next.size()];
  }
}

}  // namespace specdec
