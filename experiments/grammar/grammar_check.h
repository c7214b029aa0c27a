#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "experiments/grammar/grammar_cases.h"
#include "grammar/compiled_grammar.h"

namespace specdec {

/// What a grammar said of one instance.
struct InstanceResult {
  bool valid = false;     ///< what the file says
  bool accepted = false;  ///< what the grammar says
  bool limited = false;   ///< a limit of the grammar was reached: neither right nor wrong
  std::string note;       ///< where the walk stopped; the instance's description
};

/// What became of one schema or grammar.
struct CaseResult {
  std::string id;
  bool compiled = false;
  std::optional<std::string> error;
  bool internal_error = false;  ///< the error is a mistake of specdec
  bool has_tests = false;       ///< the file has instances, though a broken schema walks none
  double compile_us = 0.0;
  double first_mask_us = 0.0;  ///< from the schema's text to the first mask
  std::vector<InstanceResult> tests;
  std::vector<double> mask_us;  ///< the first one, then of each step of each instance

  bool all_right() const;
};

struct CheckOptions {
  JsonSchemaOptions schema;   ///< of cases without a grammar
  bool write_bits = false;    ///< the time of a mask holds that of writing its bits
  GrammarLimits limits = {};  ///< of such cases
};

/// Compiles a grammar and walks its instances token by token: each token's bit in the mask, and at
/// the end the end tokens' bits, must say what the matcher says. Errors are noted in the result.
CaseResult check_grammar_case(const GrammarCase& test_case,
                              const std::shared_ptr<GrammarVocabulary>& vocabulary,
                              const Tokenizer& tokenizer, const CheckOptions& options);

/// Tokens that stand for exactly this text: as the tokenizer has it, or byte pieces where that has
/// control pieces or other text ("▁").
std::vector<Token> spell_tokens(const std::string& text, const GrammarVocabulary& vocabulary,
                                const Tokenizer& tokenizer);

/// What is wrong, a line each: errors, valid instances refused, invalid ones accepted.
std::vector<std::string> problem_lines(const CaseResult& result);
/// One line of JSON: {"id", "compiled", "error", "compile_us", "first_mask_us", "tests",
/// "mask_us"}.
std::string case_json(const CaseResult& result);
/// Counts over all schemas and quantiles of the times.
void print_grammar_totals(std::ostream& out, const std::vector<CaseResult>& results,
                          uint64_t vocabulary_walks);

}  // namespace specdec
