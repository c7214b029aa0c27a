#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// What the tokenizers below are made of.
struct MergePieces {
  std::vector<std::string> characters, whole;
  std::vector<std::string> joined;  ///< the best first; what cannot be put together is never made
};

/// A tokenizer of ranked merges: <pad>, <eos> (token 1, kTinyEnd), <bos>, <unk>, the whole pieces,
/// all bytes, the characters, the joined pieces.
std::unique_ptr<Tokenizer> merge_tokenizer(const MergePieces& pieces);

/// Joined pieces over "abc \n" in an order that training would not give, so that merges on the way
/// to a piece may come after it in rank; runs of spaces and line breaks, and "<ab>", are whole.
MergePieces random_merge_pieces(uint32_t seed, size_t joined);

}  // namespace specdec
