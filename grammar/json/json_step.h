#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "grammar/json/json_automaton.h"

namespace specdec {

/// The threads of a state, one byte further.
class JsonAutomaton::Step {
 public:
  Step(JsonAutomaton& self, StateId from, uint8_t byte)
      : self_(self), from_(self.states_[from]), byte_(byte) {
    to_.depth = from_.depth;
    to_.text = from_.text;
    to_.text_depth = from_.text_depth;
    to_.guessed = from_.guessed;
    to_.guessed_depth = from_.guessed_depth;
  }

  StateId run();

 private:
  using Style = WhitespaceStyle::Kind;
  struct Container {
    uint8_t end = 0;
    Kind next = Kind::kDone;   ///< of a thread after a part
    Kind close = Kind::kDone;  ///< before the end on a line of its own
  };

  bool style(Style kind) const { return self_.options_.whitespace.kind == kind; }
  uint32_t line(uint32_t depth) const {
    return style(Style::kIndent) ? kNewline | depth * self_.options_.whitespace.limit : 0;
  }
  void push(const Thread& thread) { threads_.push_back(thread); }
  uint32_t recorded_with(uint8_t byte) {
    return to_.text == kUnknownText ? kUnknownText : self_.texts_.add(to_.text, byte);
  }
  /// True for the line break that optional white space may have beside other characters.
  bool is_line_break() const { return byte_ == '\n' && self_.options_.whitespace.line_break; }
  bool optional_space() const;

  void drop_impossible();
  void pad();
  void take_all();
  void take(const Thread& thread);
  void value(const Thread& thread);
  void enter();
  void literal_start(const ValuePlan& plan, uint32_t stack);
  void literal(const Thread& thread);
  void string(const Thread& thread);
  bool number(const Thread& thread);

  void open_array(ArrayStateId state, uint32_t stack);
  void add_items(ArrayStateId state, uint32_t stack);
  bool goes_on(const Thread& thread, const Container& container, bool may_end);
  void array(const Thread& thread);
  void open_object(ObjectStateId state, uint32_t stack);
  void object(const Thread& thread);
  void key_may_come(ObjectStateId state, uint32_t stack);
  void key_start(const Thread& thread);
  void push_key(KeyState state, uint32_t stack);
  void key(const Thread& thread);
  void narrow(KeyState& state, char32_t point);
  void end_key(const KeyState& state, uint32_t stack);
  void push_colon(std::vector<Choice> choices, uint32_t stack);
  void colon(const Thread& thread);

  void leave(uint32_t stack);
  std::optional<ArrayStateId> with_item(const Entry& entry);
  void end_value(uint32_t stack);
  void settle_values();

  JsonAutomaton& self_;
  const State from_;
  uint8_t byte_;
  State to_;
  std::vector<Thread> threads_;  // of `to_`
  std::vector<std::pair<FormulaId, Entry>> values_;
  bool recording_now_ = false;
  bool appended_ = false;
  bool ending_number_ = false;
};

}  // namespace specdec
