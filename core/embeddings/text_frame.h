#pragma once
#include <filesystem>
#include <vector>

#include "core/formats/gguf/gguf.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// The special tokens that a tokenizer puts around a text that is to be embedded.
struct TextFrame {
  std::vector<Token> before, after;
  int64_t size() const { return static_cast<int64_t>(before.size() + after.size()); }
};

/// The special tokens that transformers adds to a text: by the TemplateProcessing of
/// `folder`/tokenizer.json, else <bos> where the tokenizer adds it; <eos> at the end where
/// add_eos_token of tokenizer_config.json says so, too. Throws WeightsError for damaged files, or a
/// template with tokens that the tokenizer lacks.
TextFrame read_text_frame(const std::filesystem::path& folder, const Tokenizer& tokenizer);
/// The special tokens around a text by the metadata of a GGUF file.
TextFrame read_text_frame(const GgufMetadata& metadata, const Tokenizer& tokenizer);

}  // namespace specdec
