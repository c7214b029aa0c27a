#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/types.h"
#include "experiments/config/new_folder.h"

namespace specdec {

/// A line of answers.jsonl.
struct AnswerRecord {
  int64_t number = 0;  ///< of the prompt
  bool own = false;    ///< the model wrote the user's turn
  double temperature = 0.0;
  std::string end;              ///< see AnswerEnd
  std::vector<Token> tokens;    ///< prompt and answer; empty: there is no answer
  int64_t answer = 0;           ///< where the answer begins
  int64_t first_row = 0;        ///< of features.bf16; tokens - 1 rows
  std::vector<float> log_sums;  ///< of each answer token's logits
};

/// Which answers a head is trained on.
struct AnswerSelection {
  std::filesystem::path folder;  ///< of `specdec answers`; "" = trained on text instead
  int64_t prompts = 0;           ///< the first so many; 0 = all there are
  /// Runs' generations.jsonl: answers with `exclude_run` tokens in a row of theirs are left out.
  std::vector<std::filesystem::path> exclude = {};
  int64_t exclude_run = 32;
};

/// The folder of answers in the making: answers.json (what they depend on), answers.jsonl and
/// features.bf16 (rows of bfloat16). An answer counts when its line is complete.
class AnswerWriter {
 public:
  /// Goes on with what the folder holds; what an interrupted run left behind the last complete line
  /// is cut off. Throws Error when it holds answers of another identity, cannot be written, or is
  /// written by another process.
  AnswerWriter(std::filesystem::path folder, const std::string& identity, int64_t width);

  /// Numbers of the prompts that are done.
  const std::set<int64_t>& done() const { return done_; }
  int64_t answer_tokens() const { return answer_tokens_; }
  /// Adds a record with its features [tokens - 1, width], undefined without tokens. Sets first_row.
  void add(AnswerRecord record, const at::Tensor& features);

 private:
  void resume();

  std::filesystem::path folder_;
  NewFolder made_;  // locked while this object lives
  int64_t width_;
  int64_t rows_ = 0;
  int64_t answer_tokens_ = 0;
  std::set<int64_t> done_;
  std::ofstream lines_, features_;
};

/// The `tokens` of each line of a run's generations.jsonl. Throws Error naming file and line.
std::vector<std::vector<Token>> read_generated_tokens(const std::filesystem::path& file);
/// All complete lines of `folder`/answers.jsonl, by number. Throws Error naming file and line.
std::vector<AnswerRecord> read_answer_records(const std::filesystem::path& folder);
/// `folder`/features.bf16 mapped: [rows, width] bfloat16. Throws Error where it is missing.
at::Tensor map_answer_features(const std::filesystem::path& folder, int64_t width);
/// What answers depend on, as far as training has to know it.
struct AnswerIdentity {
  std::string target;           ///< fingerprint of its weights
  std::vector<int64_t> layers;  ///< whose outputs are kept beside the last ones
  std::vector<Token> suppressed;
};

/// Reads `folder`/answers.json. Throws Error naming file and key.
AnswerIdentity parse_answer_identity(const std::filesystem::path& folder);
/// The text of `folder`/answers.json. Throws Error saying how to make the answers.
std::string read_answer_identity(const std::filesystem::path& folder);

}  // namespace specdec
