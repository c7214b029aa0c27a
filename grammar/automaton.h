#pragma once
#include <bitset>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/json_string_decoder.h"
#include "grammar/regex.h"

namespace specdec {

/// A place in a grammar's text.
using StateId = uint32_t;

/// A place inside a JSON string, said so that masks of such places can be shared by all states and
/// grammars: one part for each language that the string may be of.
struct StringPlace {
  struct Part {
    RegexId language = RegexStore::kAll;  ///< of the characters that are still to come
    uint64_t min = 0;                     ///< how many, when the language is C*
    uint64_t max = ~uint64_t{0};
    StateId closed = 0;         ///< the state after the closing quote, whatever the string was
    bool is_name = false;       ///< `words` are exceptions to it
    bool text_matters = false;  ///< `closed` allows no less than the real states do, but maybe more
    /// What ends the list that the string is in, or begins its next string, needs no second look.
    bool more_may_come = false;
  };
  JsonStringDecoder decoder;
  EscapeStyle escapes = EscapeStyle::kAny;
  std::vector<Part> parts;
  /// Names that are told apart: the rest of each from this place on; sorted.
  struct Word {
    std::u32string rest;
    bool open = false;  ///< it may be the name
    auto operator<=>(const Word&) const = default;
  };
  std::vector<Word> words;
};

/// A grammar as an automaton over bytes, deterministic, built as it is walked. Every state but
/// kDead has a completion: nobody runs into a dead end. Not safe for use by several threads at
/// once.
class Automaton {
 public:
  static constexpr StateId kDead = 0;
  using Bytes = std::bitset<256>;

  virtual ~Automaton() = default;

  /// kDead when the grammar has no text at all.
  virtual StateId start() = 0;
  /// The state after one more byte; kDead when no text of the grammar goes on so.
  virtual StateId next(StateId state, uint8_t byte) = 0;
  /// True when the text so far is in the grammar.
  virtual bool is_complete(StateId state) = 0;
  /// What may come next and why, for people: one line a possibility.
  virtual std::string explain(StateId state) = 0;

  /// How much of the states that it may build it has built: from 0 to 1.
  virtual double used() const { return 0.0; }
  /// A short way to the end of the text, or the beginning of one, which is empty only at the end;
  /// nothing when the automaton knows none. `state` is not kDead.
  virtual std::optional<std::string> way_out(StateId /*state*/) { return std::nullopt; }
  /// Bytes that may have a next state; others have none.
  virtual Bytes candidates(StateId /*state*/) { return Bytes().set(); }
  /// True when the state lies inside a JSON string, which `place` then describes.
  virtual bool string_place(StateId /*state*/, StringPlace& /*place*/) { return false; }
};

}  // namespace specdec
