#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/added_flags.h"
#include "core/tokenizers/piece_matcher.h"
#include "core/types.h"

namespace specdec {

/// A part of a text: a token, or plain text between tokens.
struct AddedPart {
  std::string text;
  std::optional<Token> id;  ///< of a token
  bool first = false;       ///< the text begins with it
};

/// The parts of a text by the pieces of `matcher` (see split_pieces).
template <class Matcher>
std::vector<AddedPart> parts_of(std::string_view text, Matcher&& matcher) {
  std::vector<AddedPart> parts;
  std::vector<Token> found;
  const auto add_found = [&] {
    for (const Token id : found) {
      parts.push_back({.text = "", .id = id, .first = parts.empty()});
    }
    found.clear();
  };
  split_pieces(text, matcher, found, [&](std::string_view plain) {
    add_found();
    parts.push_back({.text = std::string(plain), .id = {}, .first = parts.empty()});
  });
  add_found();
  return parts;
}

/// Lets the tokens among the parts take white space beside them and be text where they are no word
/// of their own, in the order and to the letter of transformers' slow tokenizers. `piece` gives a
/// token's text.
void apply_added_flags(std::vector<AddedPart>& parts, const std::function<AddedFlags(Token)>& flags,
                       const std::function<std::string_view(Token)>& piece);

}  // namespace specdec
