#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// A set of characters, as PCRE2's expression for one of them.
struct CharacterSet {
  std::string inside;               ///< of a class
  std::vector<std::string> others;  ///< whole expressions of one character
  bool negated = false;

  std::string pattern() const;
};

/// What Oniguruma has in a POSIX bracket ("alpha"), as the inside of a class of PCRE2, whose own
/// differ; nullptr for a name that is not known.
const std::string* find_posix_class(std::string_view name);

/// PCRE2's name of Oniguruma's property `given`; `name` is that in lower case without "_", " " and
/// "-". Nothing for one that is not known.
std::optional<std::string> pcre2_property(std::string_view name, std::string_view given);

/// Oniguruma's \w outside of classes holds these too: superscript digits and fractions.
inline constexpr std::string_view kWordsOutsideClasses = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

/// A character as PCRE2's, in a class or not.
std::string pcre2_literal(std::string_view character);

/// An escape of Oniguruma that stands for one character.
struct PcreEscape {
  std::string text;  ///< as PCRE2's
  size_t bytes = 0;  ///< of the escape; 0: it is none that is known
};
/// The one that `text` begins with: \t, \x{20AC}, \x41 (not beyond ASCII, where it is a byte),
/// \u20AC,
/// \. and the like.
PcreEscape pcre2_escape(std::string_view text);

}  // namespace specdec
