#pragma once
#include <string_view>
#include <vector>

#include "core/jinja/text.h"
#include "core/tokenizers/piece_matcher.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// Encodes texts in which control pieces ("<|im_start|>") stand for themselves, as the `tokenizers`
/// library does, where Tokenizer::encode takes them for text. Only for texts that the user did not
/// write: templates, and files of a trusted source. Pieces have the flags of the tokenizer's files.
class SpecialEncoder {
 public:
  /// Borrows the tokenizer.
  explicit SpecialEncoder(const Tokenizer& tokenizer);
  std::vector<Token> encode(std::string_view text) const { return encode(JinjaText(text)); }
  /// Control pieces are those that the template wrote.
  std::vector<Token> encode(const JinjaText& text) const;

 private:
  /// What lies between the other control pieces of `whole`, from `begin` on.
  void encode_between(std::string_view text, TextStart start, const JinjaText& whole, size_t begin,
                      std::vector<Token>& tokens) const;
  const Tokenizer& tokenizer_;
  PieceMatcher control_;
  PieceMatcher behind_space_;  // control pieces that stand behind spaces only
  bool has_behind_space_ = false;
  bool has_flags_ = false;
};

}  // namespace specdec
