#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/types.h"
#include "experiments/components/model_files.h"

namespace specdec {

/// Something to score: the first token is only context.
struct Passage {
  std::string id;
  std::vector<Token> tokens;
  int64_t bytes = 0;  ///< of its text, without those of the first token; 0 when given as ids
};

/// A part of a passage that fits the model; its first token is the passage's.
struct PassageWindow {
  size_t passage = 0;
  std::vector<Token> tokens;
};

/// The passages of a text, or of prompts (.jsonl): each turn is one. Throws ConfigError for a file
/// that holds nothing to score, bytes that are no UTF-8, prompts with adapters, and texts where the
/// model has no tokenizer.
std::vector<Passage> read_passages(const std::filesystem::path& file, const ModelFiles& files);
/// Consecutive parts of at most `window` tokens, at least 2, each after the passage's first token:
/// every other token is in one of them.
std::vector<PassageWindow> split_passages(const std::vector<Passage>& passages, int64_t window);

}  // namespace specdec
