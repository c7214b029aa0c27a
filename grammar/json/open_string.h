#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/json/json_string_decoder.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// What may come of a JSON string that has begun, said so that its masks can be shared by all
/// states and grammars: one part for each language that the string may be of.
struct OpenString {
  struct Part {
    RegexId language = RegexStore::kAll;  ///< of the characters that are still to come
    uint64_t min = 0;                     ///< how many, when the language is C*
    uint64_t max = ~uint64_t{0};
    StateId closed = 0;         ///< the state after the closing quote, whatever the string was
    bool is_name = false;       ///< `words` are exceptions to it
    bool text_matters = false;  ///< `closed` allows no less than the real states do, but maybe more
    bool narrow = false;        ///< it may have no text left but some of the words
  };
  JsonStringDecoder decoder;
  Escapes escapes;
  std::vector<Part> parts;
  /// Names that are told apart: what is still to come of each; sorted.
  struct Word {
    std::u32string rest;
    bool open = false;     ///< it may be the name
    bool by_text = false;  ///< whether it may, only the state after it says
    auto operator<=>(const Word&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  std::vector<Word> words;
};

/// A place in the texts of another automaton: tokens without any of the bytes `apart` may come
/// there where they may come here.
struct AlikePlace {
  Automaton* automaton = nullptr;
  StateId state = 0;
  Automaton::Bytes apart;
};

/// The states of an automaton that lie inside JSON strings.
class StringStates {
 public:
  virtual ~StringStates() = default;
  /// True when the state lies between two characters of a string, which `string` then describes.
  virtual bool describe(StateId state, OpenString& string) = 0;
  /// True when a state on a way from a string's `closed` may be dead after some of the strings that
  /// lead there. Names that are told apart do not count.
  virtual bool depends_on_string(StateId state) = 0;
  /// True where a place of another automaton says which of most tokens may come; its masks may be
  /// found out faster.
  virtual bool find_alike(StateId /*state*/, AlikePlace& /*place*/) { return false; }
};

}  // namespace specdec
