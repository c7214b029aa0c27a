#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "grammar/json/json_automaton.h"

namespace specdec {

/// The values that arrays tell apart, by the beginnings of their texts: which of them an item that
/// has begun may still become. What was found is kept, so that a place in an item takes one look at
/// the values, however many tokens are tried there.
class JsonAutomaton::ExcludedValues {
 public:
  /// Borrows the automaton.
  explicit ExcludedValues(JsonAutomaton& self) : self_(self) {}

  /// Where the string begins that the beginning of a JSON text ends in: at its quote.
  static size_t open_string(std::string_view text);

  /// An item of an array that tells values apart, as far as its text is known.
  struct Item {
    ArrayStateId array = 0;
    uint32_t recorded = 0;  ///< the text, as in State
    std::string_view text;  ///< the same from where the item begins
  };
  /// Values that the item may still become, and perhaps some more: told by the parts of it that are
  /// complete. Lives until the next call.
  const std::vector<ValueId>& left(const Item& item);
  /// The strings, or names, as which the string that the text ends in makes the item such a value:
  /// what is still to come of each, added to `words`.
  void add_words(const Item& item, std::vector<OpenString::Word>& words);

 private:
  using Place = std::tuple<ArrayStateId, uint32_t, size_t>;  ///< and text, and its length
  using Strings = std::vector<std::string_view>;             ///< of the store; sorted, each once

  Place place(const Item& item, size_t size) const;
  const Strings& strings(const Item& item, size_t quote);
  void make_room(size_t more);

  JsonAutomaton& self_;
  std::map<Place, std::vector<ValueId>> left_;
  std::map<Place, Strings> strings_;  ///< by the text before the string
  size_t kept_ = 0;                   ///< values and strings
};

}  // namespace specdec
