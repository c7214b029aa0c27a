#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace specdec {

/// How a tokenizer is trained.
struct TokenizerTraining {
  std::vector<std::string> texts;  ///< UTF-8; what is held out must have been cut off before
  int64_t vocab_size = 2048;  ///< all pieces: control, user-defined, 256 bytes and learned ones
};

/// Trains a tokenizer of Gemma's kind with SentencePiece: BPE, byte fallback, no normalisation, no
/// space put before the text, digits on their own; <pad> 0, <eos> 1, <bos> 2, <unk> 3, then the
/// turn pieces, runs of newlines, of spaces and of tabs, the bytes, and what is learned. The same
/// texts give the same files. Writes tokenizer.model, tokenizer.json (same ids) and
/// tokenizer_config.json to `out_folder`, which is made when missing.
///
/// Throws Error: no text, not UTF-8, a vocabulary too small or too large for the text, a folder
/// that cannot be written.
void train_tokenizer(const TokenizerTraining& options, const std::filesystem::path& out_folder);

}  // namespace specdec
