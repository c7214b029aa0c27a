#pragma once
#include <string>
#include <vector>

#include "core/formats/sentencepiece_model.h"

namespace specdec {

struct TokenizerJsonText;

/// One way to join two pieces; earlier ones come first.
struct BpeMerge {
  Token left = 0;
  Token right = 0;
  Token result = 0;
};

/// An added token that is looked for in the text before anything else.
struct AddedToken {
  std::string text;  ///< as it is looked for: with "▁" for spaces when `normalized`
  Token id = 0;
  bool normalized = false;  ///< looked for after spaces have become "▁", else before
};

/// The content of a tokenizer.json of Gemma's or Llama 2's kind.
struct BpeModel {
  SentencePieceModel vocabulary;  ///< scores are 0: the merges say the order
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;  ///< control pieces are not among them
};

/// Reads tokenizer.json; see bpe_tokenizer for what it refuses.
BpeModel parse_tokenizer_json(TokenizerJsonText text, const std::string& where);

}  // namespace specdec
