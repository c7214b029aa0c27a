#pragma once

namespace specdec {

/// What a token of Hugging Face's files does to the text around it where it is looked for.
struct AddedFlags {
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space behind it
  bool single_word = false;  ///< is text where something but a space stands beside it
  /// Stands behind a space, which it takes, or at the beginning of a text between other tokens;
  /// the text behind it goes on: `normalized` where a normalizer puts spaces before texts.
  bool behind_space = false;

  bool any() const { return lstrip || rstrip || single_word || behind_space; }
};

}  // namespace specdec
