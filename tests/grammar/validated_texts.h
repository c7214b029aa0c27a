#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/naive_validator.h"

namespace specdec {

/// Expects that the grammar accepts those texts that the validator accepts; `valid` grows by their
/// number.
inline void expect_texts_are_valid(const CompiledGrammar& grammar, const NaiveValidator& validator,
                                   const std::vector<std::string>& texts, int& valid) {
  for (const std::string& text : texts) {
    const bool expected = validator.accepts(parse_json(text, "text"));
    valid += expected ? 1 : 0;
    ASSERT_EQ(accepts(grammar, text), expected) << text;
  }
}

/// A random text of the grammar is valid.
inline void expect_walk_is_valid(const CompiledGrammar& grammar, const NaiveValidator& validator,
                                 const std::string& schema, uint32_t seed) {
  GrammarWalk walk(grammar, schema, seed);
  const auto text = walk.text(12);
  ASSERT_TRUE(text || walk.lost()) << walk.begun();
  try {
    ASSERT_TRUE(!text || validator.accepts(parse_json(*text, "text"))) << *text;
  } catch (const std::invalid_argument&) {
    return;  // a number too large for the validator
  }
}

}  // namespace specdec
