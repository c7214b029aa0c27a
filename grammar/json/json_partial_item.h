#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/json/json_automaton.h"

namespace specdec {

/// Items that have begun, of arrays that tell values apart: what they may still become. Each such
/// array around a place takes some values of its next item and refuses others.
class JsonAutomaton::PartialItem {
 public:
  /// Borrows both; the text of the state's outermost such item is known, or `text_known` is false.
  PartialItem(JsonAutomaton& self, const State& state)
      : self_(self), plans_(self.plans_), state_(state) {}

  /// True when the thread leads to values that all the arrays take.
  bool is_possible(const Thread& thread);
  /// What ends the outermost item with such a value.
  std::optional<std::string> completion(const Thread& thread);
  /// True only when the thread leads to values besides those that are told apart, and one more.
  bool has_others(const Thread& thread);
  /// What is still to come of strings that are told apart: with these the items may become values
  /// that make a difference.
  void add_words(const Thread& thread, OpenString& string);

 private:
  const std::string& text();
  std::string_view text(const Entry& entry);
  uint32_t depth_of(const Thread& thread) const;
  /// How many values an array refuses at most of its item.
  using Refused = std::function<uint64_t(const Entry& entry)>;
  Refused excluded_values();
  Refused left();
  /// Sums by stack: alternatives that are open at once share what is around them.
  using Sums = std::unordered_map<uint32_t, uint64_t>;
  uint64_t sum(const Thread& thread, const Refused& refused);
  uint64_t sum(uint32_t stack, uint32_t depth, const Refused& refused, Sums& known);
  /// What may still become many values: what a thread is in, or a list or object around it; and how
  /// many of these the arrays inside the item may refuse.
  struct Part {
    Thread thread;
    uint64_t refused = 0;
  };
  bool may_end(const Thread& thread);
  bool has_many(const Thread& thread, uint64_t many);
  struct Enough {
    uint64_t spare = 0;
    const Refused& refused;
    std::unordered_set<uint32_t> tried = {};  ///< stacks
  };
  bool are_enough(const std::vector<Part>& parts, uint32_t stack, uint32_t depth, Enough& enough);
  std::vector<std::string> rests(const Thread& thread, uint64_t most);
  std::vector<std::string> list_rests(const Thread& thread, uint64_t most);
  size_t count_objects(const Thread& key, const std::vector<std::string>& rests);
  std::vector<std::string> number_rests(const NumberTexts& numbers, uint64_t most);
  std::vector<std::string> string_rests(const StringState& string, uint64_t most);
  std::vector<std::string> name_rests(const KeyState& key, uint64_t most);
  template <class Word>
  bool begins_well(const JsonStringDecoder& decoder, const Word& word) const;
  size_t complete_size(const Thread& thread);
  std::string_view number_text();
  std::optional<std::string> finish(const std::string& text, uint32_t stack, uint32_t depth,
                                    uint64_t most);
  std::optional<std::string> finish(const Entry& entry, const std::string& text, uint32_t depth,
                                    uint64_t most);

  JsonAutomaton& self_;
  JsonPlans& plans_;
  const State& state_;
  std::optional<std::string> text_;
  std::set<std::pair<uint32_t, std::string>> no_way_;  ///< stacks, after these texts: of one search
};

}  // namespace specdec
