#include "core/tokenizers/special_encoder.h"

#include "core/formats/sentencepiece_model.h"
#include "core/tokenizers/added_parts.h"

namespace specdec {
namespace {

/// Finds control pieces where all of their bytes are the template's.
class WrittenPieces {
 public:
  WrittenPieces(const PieceMatcher& control, const JinjaText& text)
      : control_(control), text_(text) {}

  /// Longest match at the beginning of `rest`, an end of the text that is shorter in each call.
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
      const AddedFlags flags = tokenizer.added_flags(token);
      (flags.behind_space ? behind_space_ : control_).add(tokenizer.piece(token), token);
      has_behind_space_ = has_behind_space_ || flags.behind_space;
      has_flags_ = has_flags_ || flags.any();
    }
  }
}

// Pieces behind a space are found as the library finds them: in the text with "▁" before it.
void SpecialEncoder::encode_between(std::string_view text, TextStart start, const JinjaText& whole,
                                    size_t begin, std::vector<Token>& tokens) const {
  const auto append = [&](std::string_view plain, TextStart before) {
    const auto encoded = tokenizer_.encode_after(before, plain);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  };
  size_t done = 0;
  TextStart before = start;
  for (size_t at = 0; has_behind_space_ && at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    const size_t space = rest[0] == ' ' ? 1 : rest.starts_with(kSpaceMark) ? kSpaceMark.size() : 0;
    if (space == 0 && at > 0) {
      continue;
    }
    const auto match = behind_space_.longest(rest.substr(space));
    if (match.bytes == 0 || whole.written_from(begin + at + space) < match.bytes) {
      continue;
    }
    append(text.substr(done, at - done), before);
    if (at == 0 && space > 0) {  // the space put before the text is not the token's
      tokens.push_back(tokenizer_.find_piece(kSpaceMark).value_or(match.id));
    }
    tokens.push_back(match.id);
    done = at + space + match.bytes;
    at = done - 1;
    before = TextStart::kContinued;
  }
  append(text.substr(done), before);
}

std::vector<Token> SpecialEncoder::encode(const JinjaText& text) const {
  std::vector<AddedPart> parts = parts_of(text.bytes(), WrittenPieces(control_, text));
  if (has_flags_ && !has_behind_space_) {  // no tokenizer has both
    apply_added_flags(
        parts, [this](Token id) { return tokenizer_.added_flags(id); },
        [this](Token id) { return tokenizer_.piece(id); });
  }
  std::vector<Token> tokens;
  size_t begin = 0;
  for (const AddedPart& part : parts) {
    if (part.id) {
      tokens.push_back(*part.id);
    } else {
      const TextStart start = part.first ? TextStart::kInput : TextStart::kAfterControl;
      encode_between(part.text, start, text, begin, tokens);
    }
    begin += part.id ? tokenizer_.piece(*part.id).size() : part.text.size();
  }
  return tokens;
}

}  // namespace specdec
