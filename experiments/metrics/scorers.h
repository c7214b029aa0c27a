#pragma once
#include <cstdint>
#include <string>

namespace specdec {

/// How an answer is compared with its reference.
enum class Scorer {
  kNumber,   ///< "number": its final number is the reference, exactly
  kRegex,    ///< "regex": some part of it matches the reference, an expression of ECMA-262
  kProgram,  ///< "program": a program of the user's says so; see run_scorer
};

/// What the answer to one turn of a question must be.
struct AnswerKey {
  Scorer scorer = Scorer::kNumber;
  std::string reference;
};

/// Throws ConfigError: a scorer of another name, a reference that is no number or no regular
/// expression.
AnswerKey make_answer_key(const std::string& scorer, const std::string& reference);

/// The final number of an answer is the one after its first "####", the mark of GSM8K (Cobbe et
/// al., 2021, arXiv:2110.14168), else its last one. Commas between digits, zeros that change
/// nothing and a sign of currency do not matter; 1/2 or 1e3 are not read. InternalError for an
/// answer that a program scores.
bool is_right(const AnswerKey& key, const std::string& answer);

}  // namespace specdec
