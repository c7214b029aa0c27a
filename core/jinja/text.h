#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/jinja/budget.h"

namespace specdec {

/// A text while a chat template is rendered. Each byte is known to be the template's own or a
/// turn's, through all that the template does to it, so that control pieces which a user wrote stay
/// text. Methods are those of Python's str, whose characters are code points. Copies share the
/// bytes.
class JinjaText {
 public:
  JinjaText() = default;
  /// A text that the template wrote.
  explicit JinjaText(std::string_view text) : JinjaText(text, '\0') {}
  /// The text of a turn.
  static JinjaText of_turn(std::string_view text) { return {text, '\1'}; }

  const std::string& bytes() const;
  size_t size() const { return bytes().size(); }
  bool empty() const { return size() == 0; }
  /// How many bytes from `begin` on are the template's own.
  size_t written_from(size_t begin) const;

  JinjaText part(size_t begin, size_t end) const;
  /// Throws Error for a text that no chat has.
  JinjaText& operator+=(const JinjaText& other);
  /// Appends a character that stands for the byte at `i` of `source`, by the same author.
  void append_for(std::string_view character, const JinjaText& source, size_t i);

  /// Where each character begins, and at the end size().
  std::vector<size_t> characters() const;
  int64_t character_count() const;
  /// The text without the characters at the ends that are in `set`; nullptr: white space.
  JinjaText stripped(const std::string* set, bool left, bool right) const;
  /// Parts of the text split at each `separator`, at most `most` times (-1: always).
  std::vector<JinjaText> split(std::string_view separator, int64_t most, JinjaBudget& budget) const;
  /// Parts of the text split at white space, without empty ones.
  std::vector<JinjaText> words(JinjaBudget& budget) const;
  JinjaText replaced(std::string_view from, const JinjaText& to, int64_t most,
                     JinjaBudget& budget) const;

 private:
  struct Written {
    std::string bytes;
    std::string authors;  // by byte: 0 for the template, 1 for a turn
  };

  JinjaText(std::string_view text, char author);
  /// What is written, as nobody else's: to be changed.
  Written& own();

  std::shared_ptr<Written> written_;  // nullptr: empty
};

/// Where `part` stands in `text` first, from `begin` on, in linear time; npos: nowhere.
size_t place_of(std::string_view part, std::string_view text, size_t begin = 0);
/// A text for messages, of at most `most` bytes.
std::string shortened(std::string_view text, size_t most = 80);
/// Bytes of white space, as str.isspace() has it, that a text begins with; 0: none.
size_t python_space_at(std::string_view text);
/// Length of `text` without the white space at its end.
size_t without_spaces_behind(std::string_view text);

}  // namespace specdec
