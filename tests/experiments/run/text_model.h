#pragma once
#include <filesystem>

namespace specdec {

/// Writes a checkpoint with a tokenizer to `folder`: tests/data/gemma3-a with its embedding
/// repeated to the 600 entries of tests/data/tokenizer. What it says makes no sense.
void write_text_model(const std::filesystem::path& folder);

}  // namespace specdec
