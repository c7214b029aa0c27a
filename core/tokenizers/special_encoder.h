#pragma once
#include <string_view>
#include <vector>

#include "core/jinja/text.h"
#include "core/tokenizers/piece_matcher.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// Encodes texts in which control pieces ("<|im_start|>") stand for themselves, as the `tokenizers`
/// library does, where Tokenizer::encode takes them for text. Only for texts that the user did not
/// write: templates, and files of a trusted source.
class SpecialEncoder {
 public:
  /// Borrows the tokenizer.
  explicit SpecialEncoder(const Tokenizer& tokenizer);
  std::vector<Token> encode(std::string_view text) const { return encode(JinjaText(text)); }
  /// Control pieces are those that the template wrote.
  std::vector<Token> encode(const JinjaText& text) const;

 private:
  const Tokenizer& tokenizer_;
  PieceMatcher control_;
};

}  // namespace specdec
