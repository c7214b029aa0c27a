#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json/json_automaton.h"

namespace specdec {

/// Short texts that end what a state has begun. They follow the plans, not the bytes: of a value
/// the simplest kind, of a list or object what brings it nearer to its end. Without white space;
/// what is found for a plan is kept.
class JsonAutomaton::Completion {
 public:
  explicit Completion(JsonAutomaton& self) : self_(self), plans_(self.plans_) {}

  /// True when so much is remembered that too little may be left for another question.
  bool is_full() const;

  /// What ends the innermost thing that a thread is in, and what then ends those around it.
  struct Rest {
    std::string inner;
    std::string outer;
    size_t size() const { return inner.size() + outer.size(); }
  };
  std::optional<Rest> rest(const Thread& thread);

 private:
  using Known = std::map<std::pair<uint32_t, int>, std::optional<std::string>>;
  static constexpr int kMaxMadeDepth = 48;  ///< lists and objects in each other, of a made value
  static constexpr size_t kMaxKnown =
      50'000;  ///< completions that are remembered; then none is found

  std::optional<std::string> inner(const Thread& thread);

  /// The first that is found, from the flattest on.
  template <class Make>
  std::optional<std::string> by_depth(const Make& make) {
    std::optional<std::string> text;
    for (int depth = 0; depth <= kMaxMadeDepth && !text; ++depth) {
      text = make(depth);
    }
    return text;
  }

  /// What ends all lists and objects of a stack, as if an item in progress had been counted.
  std::optional<std::string> after(uint32_t stack);

  // -- Values

  std::optional<std::string> value(FormulaId goal);
  std::optional<std::string> value(FormulaId goal, int depth);
  std::optional<std::string> make_value(ValuePlan plan, int depth);  // a copy: plans grow

  /// Ends a string, its quote included. Legible if it can be.
  std::optional<std::string> string(const StringPlan& plan);

  /// The language's texts of letters and digits, those of ASCII without escapes, and all of them.
  std::array<RegexId, 3> by_legibility(RegexId language);
  std::optional<std::u32string> shortest(RegexId language);
  std::optional<std::u32string> fresh_word(const KeyState& key, RegexId language);

  // -- Lists

  /// Ends a list; `next`: after an item.
  std::optional<std::string> array(ArrayStateId id, int depth, bool next);
  /// Items that an array needs at least.
  uint64_t array_left(ArrayStateId id) const;
  std::optional<std::string> make_items(ArrayStateId id, int depth);
  std::vector<std::string> items(const Choice& choice, int depth);

  // -- Objects

  /// Ends an object after a property.
  std::optional<std::string> object(ObjectStateId id, int depth);
  /// Properties that an object needs at least.
  uint64_t object_left(ObjectStateId id) const;

  /// A property and what ends the object after it; with `nearer`, one that brings it nearer to
  /// that.
  std::optional<std::string> property(ObjectStateId id, int depth, bool nearer);

  /// False when a required value needs more depth: no order of the names would help.
  bool can_make_required(ObjectStateId id, int depth);

  /// The rest of a name, its value, and what ends the object after it.
  std::optional<std::string> name(const KeyState& key, int depth, bool nearer);

  /// The value and the rest of the object, for one of the choices that leave less than `most` to
  /// do.
  std::optional<std::string> choice(const std::vector<Choice>& choices, const std::string& before,
                                    int depth, uint64_t most);

  template <class Make>
  std::optional<std::string> remember(Known& known, uint32_t id, int depth, const Make& make) {
    if (const auto found = known.find({id, depth}); found != known.end()) {
      return found->second;
    }
    if (known.size() >= kMaxKnown) {
      return std::nullopt;
    }
    return known[{id, depth}] = make();
  }

  JsonAutomaton& self_;
  JsonPlans& plans_;
  Known values_, arrays_, properties_, nearer_;
  std::map<uint32_t, std::optional<std::string>> stacks_;
};

}  // namespace specdec
