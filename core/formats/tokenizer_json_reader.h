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

/// An added token that is looked for in a text before anything else, as in the `tokenizers`
/// library: first those of the text as it is, then the `normalized` ones between them.
struct AddedToken {
  std::string text;  ///< as it is looked for, so normalised too if `normalized`
  Token id = 0;
  bool normalized = false;  ///< looked for in the normalised text: NFC; "▁" for spaces
};

/// The content of a tokenizer.json of Gemma's or Llama 2's kind.
struct BpeModel {
  SentencePieceModel vocabulary;  ///< scores are 0: the merges say the order
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;  ///< control pieces are not among them
  /// Control pieces that are looked for in the normalised text, where a space stands before them.
  std::vector<Token> behind_space;
};

/// Reads tokenizer.json; see bpe_tokenizer for what it refuses. Whether <bos> stands before texts
/// is what its TemplateProcessing says, else `config`, else it does not.
BpeModel parse_tokenizer_json(TokenizerJsonText text, const std::string& where,
                              const TokenizerConfig& config = {});

}  // namespace specdec
