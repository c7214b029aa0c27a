#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/randomness.h"
#include "core/types.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_limits.h"

namespace specdec {

struct GrammarSampleOptions {
  int64_t max_tokens = 512;
  /// Seconds that one text may take, whatever a call of the grammar may; looked at now and then.
  uint64_t max_seconds = GrammarLimits().max_seconds;
  /// Names that the grammar's objects may have, the required ones first. Hints: where a name may
  /// come they are tried before others.
  std::vector<std::string> names = {};
  /// Texts that are often taken where a text may end: tags that start a grammar.
  std::vector<std::string> tags = {};
};

/// The tokens of a random text of a grammar, without an end token: a random walk over its
/// masks, which from half of `max_tokens` on takes the shortest completion that it finds. Nothing
/// when no text of at most `max_tokens` was found in a few tries. Throws GrammarError at a limit of
/// the grammar and beyond `max_seconds`.
std::optional<std::vector<Token>> sample_grammar(
    const std::shared_ptr<const CompiledGrammar>& grammar, const GrammarSampleOptions& options,
    Randomness& random);

}  // namespace specdec
