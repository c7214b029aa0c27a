#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace specdec {

/// What a program is asked about.
struct ScoredAnswer {
  std::string prompt_id;  ///< for messages
  std::string prompt;     ///< the turn's text
  std::string text;       ///< the answer
  std::string reference;  ///< of the prompts file
};

/// Why a file cannot be run as a program; "" when it can.
std::string program_mistake(const std::filesystem::path& program);

/// Runs a program of the user's on one answer: {"prompt", "text", "reference"} as one JSON object
/// on its standard input; its exit status says right (0) or wrong (1). It is started without a
/// shell, its standard output is not read, and after `seconds` it and what it started are killed:
/// then it said nothing (none). Throws Error, with what it wrote to standard error, for a program
/// that cannot be started, ends with another status or by a signal, or with 1 and a Python
/// traceback, which is how a crash there ends.
std::optional<bool> run_scorer(const std::filesystem::path& program, double seconds,
                               const ScoredAnswer& answer);

}  // namespace specdec
