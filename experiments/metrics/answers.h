#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "experiments/metrics/metrics.h"

namespace specdec {

/// One try at a question, all turns: a `choice` of Spec-Bench's answer files.
struct AnswerChoice {
  std::vector<std::string> turns;       ///< the replies
  std::vector<int64_t> decoding_steps;  ///< of each turn
  std::vector<int64_t> new_tokens;      ///< of each turn
  std::vector<double> wall_time;        ///< of each turn, seconds, prefill included
  std::vector<int64_t> accept_lengths;  ///< tokens that each step added, over all turns
};

/// A line of an answer file.
struct Answer {
  std::string question_id;
  std::string category;
  std::string model_id;
  std::vector<AnswerChoice> choices;  ///< one a repeat
};

/// The answers of one strategy at one point of the sweep, a question a line, in the order of the
/// records, in the format of Spec-Bench (github.com/hemingkx/Spec-Bench, evaluation/eval.py), which
/// its evaluation/speed.py reads. `timestamp`: seconds since 1970. `model_id` names the strategy.
/// A step's accept length is what it committed, bonus token included; the token that each turn's
/// prefill yields is in new_tokens and in no step.
std::string write_answers(std::span<const GenerationRecord* const> records,
                          const std::string& model_id, double timestamp);

/// "<strategy>.jsonl", or "<strategy>, <sweep point>.jsonl"; characters that a file name cannot
/// have become '_'.
std::string answers_file_name(const std::string& strategy, const std::string& sweep_point);

/// Reads an answer file, ours or Spec-Bench's. Throws Error with file and line: bad JSON, missing
/// keys, wrong types, negative counts, a list that does not fit the turns.
std::vector<Answer> read_answers(const std::filesystem::path& file);

/// The contents of an answer file as counts: generations, tokens, steps, committed, accepted and
/// the time, prefill included. Such files do not have drafted tokens.
Counts answer_counts(std::span<const Answer> answers);

}  // namespace specdec
