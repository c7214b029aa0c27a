#include "core/tokenizers/special_encoder.h"

namespace specdec {
namespace {

/// Finds control pieces where all of their bytes are the template's.
class WrittenPieces {
 public:
  WrittenPieces(const PieceMatcher& control, const JinjaText& text)
      : control_(control), text_(text) {}

  /// Of the end of the text, each time a shorter one.
  PieceMatcher::Match longest(std::string_view rest) {
    const size_t begin = text_.size() - rest.size();
    if (begin >= written_end_) {
      written_end_ = begin + text_.written_from(begin);
    }
    return control_.longest(rest.substr(0, written_end_ - begin));
  }

 private:
  const PieceMatcher& control_;
  const JinjaText& text_;
  size_t written_end_ = 0;  // of what the template wrote around the last place
};

}  // namespace

SpecialEncoder::SpecialEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    if (tokenizer.token_bytes(token).empty() && !tokenizer.piece(token).empty()) {
      control_.add(tokenizer.piece(token), token);
    }
  }
}

std::vector<Token> SpecialEncoder::encode(const JinjaText& text) const {
  std::vector<Token> tokens;
  const std::string_view all = text.bytes();
  split_pieces(all, WrittenPieces(control_, text), tokens, [&](std::string_view plain) {
    const bool first = plain.data() == all.data();
    const auto encoded =
        tokenizer_.encode_after(first ? TextStart::kInput : TextStart::kAfterControl, plain);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  });
  return tokens;
}

}  // namespace specdec
