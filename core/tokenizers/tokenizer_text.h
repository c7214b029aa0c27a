#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/tokenizer_config.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// A tokenizer without files: the text of a tokenizer.json, and what stands beside it.
struct TokenizerText {
  std::string_view json;        ///< borrowed for the call
  TokenizerConfig config = {};  ///< see parse_tokenizer_config
  /// Entries of the model's vocabulary: added tokens beyond it are left out.
  uint64_t vocab_size = std::numeric_limits<uint64_t>::max();
  std::string where = "tokenizer.json";  ///< names the text in errors
  std::string model = "the tokenizer";   ///< and the whole in notes
};

/// BPE with byte fallback, or byte-level BPE, as load_tokenizer makes them of a folder. Throws
/// WeightsError naming `where`. Adds what a user should know to `notes`, if given.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerText& text,
                                          std::vector<std::string>* notes = nullptr);

}  // namespace specdec
