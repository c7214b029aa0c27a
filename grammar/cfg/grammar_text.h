#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/grammar_limits.h"

namespace specdec {

/// A grammar's text and a cursor in it, for parsers; errors name the position.
class GrammarText {
 public:
  /// Borrows the text. Throws GrammarError when it is too large or not UTF-8. `where` (a file, a
  /// setting) stands in front of errors.
  GrammarText(std::string_view text, std::string_view where, const GrammarLimits& limits = {});

  size_t position() const { return position_; }
  void seek(size_t position) { position_ = position; }
  bool at_end() const { return position_ >= text_.size(); }
  /// The byte at the cursor or after it; 0 behind the end.
  char peek(size_t ahead = 0) const;
  bool looking_at(std::string_view prefix) const;
  bool accept(std::string_view prefix);
  /// Skips bytes, up to the end at most.
  void skip(size_t bytes);
  void skip_line();
  /// One character. Not at the end.
  char32_t take_point();
  /// The longest run of ASCII letters, digits, and `others`; may be empty.
  std::string_view take_word(std::string_view others);
  /// Decimal digits; fails when there are none, or the number is 2^32 or more.
  uint64_t take_number();
  /// The character that an escape means, from the backslash on: \n \t \r \xHH \uXXXX \UXXXXXXXX, or
  /// one of `plain` (where f is a form feed).
  char32_t take_escape(std::string_view plain);
  /// The characters of a literal in double quotes, from the first quote on; escapes as above.
  std::u32string take_quoted(std::string_view plain);

  /// Into a group, over the byte that opens it. Throws GrammarError when groups are nested deeper
  /// than the limits allow, or 1000 deep.
  void open_group();
  /// Out of it, over what closes it; `start`: where it began.
  void close_group(size_t start, std::string_view close);
  /// Whether the cursor is in a group.
  bool in_group() const { return depth_ > 0; }

  const std::string& where() const { return where_; }
  /// The text itself, from one position to before another.
  std::string_view between(size_t begin, size_t end) const {
    return text_.substr(begin, end - begin);
  }
  /// A part of the text for people: in one line, and short.
  std::string excerpt(size_t begin, size_t end) const;
  /// Throws GrammarError: where, line and column (in characters, from 1), message.
  [[noreturn]] void fail(size_t position, const std::string& message) const;
  [[noreturn]] void fail(const std::string& message) const { fail(position_, message); }
  /// What stands at the cursor, for errors.
  std::string here() const;

 private:
  char32_t take_hex(size_t digits, size_t start);

  std::string_view text_;
  std::string where_;
  int max_nesting_;
  int depth_ = 0;  ///< open groups
  size_t position_ = 0;
};

}  // namespace specdec
