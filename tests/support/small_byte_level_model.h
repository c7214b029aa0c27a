#pragma once
#include <string>
#include <vector>

#include "core/tokenizers/byte_level_tokenizer.h"
#include "core/tokenizers/byte_symbols.h"
#include "core/tokenizers/pre_tokenizer.h"

namespace specdec {

/// All 256 symbols but those in `without`, then "ab", a user-defined piece, and control pieces.
inline ByteLevelModel small_byte_level_model(const std::vector<std::string>& control,
                                             const std::string& without = "") {
  ByteLevelModel model;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool unused = without.find(c) != std::string::npos;
    model.pieces.push_back({.text = to_byte_symbols({&c, 1}),
                            .score = 0.0F,
                            .type = unused ? PieceType::kUnused : PieceType::kNormal});
  }
  model.pieces.push_back({.text = "ab"});
  model.pieces.push_back({.text = "<tool>", .score = 0.0F, .type = PieceType::kUserDefined});
  model.added = {{.text = "<tool>", .id = 257}};
  model.merges = {{.left = 'a', .right = 'b', .result = 256}};
  for (const std::string& piece : control) {
    model.pieces.push_back({.text = piece, .score = 0.0F, .type = PieceType::kControl});
  }
  model.patterns = find_pre_tokenizer("qwen2")->patterns;
  return model;
}

}  // namespace specdec
