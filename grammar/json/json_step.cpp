// The threads of a state, one byte further.
#include "grammar/json/json_step.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "grammar/json/json_partial_item.h"

namespace specdec {

bool JsonAutomaton::Step::optional_space() const {
  const bool space = byte_ == ' ' || byte_ == '\n' || byte_ == '\r' || byte_ == '\t';
  if (!space || !style(Style::kAny)) {
    return false;
  }
  return is_line_break() ? (from_.spaces & kNewline) == 0
                         : (from_.spaces & ~kNewline) < self_.options_.whitespace.limit;
}

StateId JsonAutomaton::Step::run() {
  if (from_.pad != 0) {
    pad();
  } else {
    take_all();
  }
  settle_values();
  if (to_.text_depth != 0) {
    to_.text = recording_now_ ? to_.text : recorded_with(byte_);
    drop_impossible();
  }
  return self_.intern(to_, std::move(threads_));
}

/// Drops threads that lead to no value that the arrays around take.
void JsonAutomaton::Step::drop_impossible() {
  PartialItem item(self_, to_);
  std::erase_if(threads_, [&](const Thread& thread) {
    return self_.item_is_open(to_, thread) && !item.is_possible(thread);
  });
}

/// White space that must come: the next piece of it, or the end of an empty list or object.
void JsonAutomaton::Step::pad() {
  const bool newline = (from_.pad & kNewline) != 0;
  if (byte_ == static_cast<unsigned char>(newline ? '\n' : ' ')) {
    to_.pad = newline ? from_.pad & ~kNewline : from_.pad - 1;
    for (const Thread& thread : from_.threads) {
      if (thread.kind != Kind::kObjectOpen && thread.kind != Kind::kArrayOpen) {
        threads_.push_back(thread);
      }
    }
    return;
  }
  for (const Thread& thread : from_.threads) {
    if (thread.kind == Kind::kObjectOpen || thread.kind == Kind::kArrayOpen) {
      take(thread);
    }
  }
}

void JsonAutomaton::Step::take_all() {
  for (const Thread& thread : from_.threads) {
    if (thread.kind != Kind::kNumber) {
      take(thread);
    } else if (!number(thread) && self_.numbers(thread.a).is_complete(thread.b)) {
      std::vector<Thread> others = std::move(threads_);
      threads_.clear();
      ending_number_ = true;
      end_value(thread.stack);
      ending_number_ = false;
      others.swap(threads_);
      for (const Thread& after : others) {  // none of them is a number
        take(after);
      }
    }
  }
}

void JsonAutomaton::Step::take(const Thread& thread) {
  const bool inside =
      thread.kind == Kind::kString || thread.kind == Kind::kKey || (thread.kind == Kind::kLiteral);
  const bool first = thread.kind == Kind::kValue && from_.depth == 0;
  if (!inside && !first && thread.kind != Kind::kDone && optional_space()) {
    to_.spaces = is_line_break() ? from_.spaces | kNewline : from_.spaces + 1;
    push(thread);
    return;
  }
  switch (thread.kind) {
    case Kind::kValue:
      return value(thread);
    case Kind::kString:
      return string(thread);
    case Kind::kLiteral:
      return literal(thread);
    case Kind::kArrayOpen:
    case Kind::kArrayClose:
    case Kind::kArrayNext:
      return array(thread);
    case Kind::kKeyStart:
      return key_start(thread);
    case Kind::kKey:
      return key(thread);
    case Kind::kColon:
      return colon(thread);
    case Kind::kObjectOpen:
    case Kind::kObjectClose:
    case Kind::kObjectNext:
      return object(thread);
    case Kind::kNumber:
    case Kind::kDone:
      return;
  }
}

// ---- Values -------------------------------------------------------------------------------------

void JsonAutomaton::Step::value(const Thread& thread) {
  const ValuePlan plan = self_.plans_.value(thread.a);
  switch (byte_) {
    case '"':
      for (const StringPlan& text : plan.strings) {
        push({Kind::kString, self_.strings_.intern({text.language, text.min, text.max, {}}), 0,
              thread.stack});
      }
      return;
    case 'n':
    case 'f':
    case 't':
      return literal_start(plan, thread.stack);
    case '[':
      enter();
      for (const ArrayStateId state : plan.arrays) {
        open_array(state, thread.stack);
      }
      return;
    case '{':
      enter();
      for (const ObjectStateId state : plan.objects) {
        open_object(state, thread.stack);
      }
      return;
    default:
      for (const uint32_t id : plan.numbers) {
        number({Kind::kNumber, id, NumberAutomaton::kStart, thread.stack});
      }
  }
}

void JsonAutomaton::Step::enter() {
  to_.depth = from_.depth + 1;
  to_.pad = line(to_.depth);
}

void JsonAutomaton::Step::literal_start(const ValuePlan& plan, uint32_t stack) {
  const std::array allowed = {plan.can_be_null, plan.can_be_false, plan.can_be_true};
  for (uint32_t i = 0; i < kLiterals.size(); ++i) {
    if (allowed[i] && static_cast<uint8_t>(kLiterals[i].front()) == byte_) {
      push({Kind::kLiteral, i, 1, stack});
    }
  }
}

void JsonAutomaton::Step::literal(const Thread& thread) {
  const std::string_view word = kLiterals[thread.a];
  if (static_cast<uint8_t>(word[thread.b]) != byte_) {
    return;
  }
  if (thread.b + 1 == word.size()) {
    end_value(thread.stack);
  } else {
    push({Kind::kLiteral, thread.a, thread.b + 1, thread.stack});
  }
}

void JsonAutomaton::Step::string(const Thread& thread) {
  StringState state = self_.strings_[thread.a];
  RegexStore& regexes = self_.formulas_.regexes();
  if (byte_ == '"' && state.decoder.idle()) {
    if (state.min == 0 && regexes.matches_empty(state.language)) {
      end_value(thread.stack);
    }
    return;
  }
  std::optional<char32_t> point;
  if (!state.decoder.take(byte_, self_.options_.escapes, point)) {
    return;
  }
  if (point) {
    state.language = regexes.next(state.language, *point);
    if (state.language == RegexStore::kNothing || state.max == 0) {
      return;
    }
    state.min -= state.min > 0 ? 1 : 0;
    state.max -= state.max != kUnbounded ? 1 : 0;
  }
  if (self_.alive(state)) {
    push({Kind::kString, self_.strings_.intern(state), 0, thread.stack});
  }
}

// ---- Numbers ------------------------------------------------------------------------------------

/// False when the byte is no part of this number.
bool JsonAutomaton::Step::number(const Thread& thread) {
  const auto next = self_.numbers(thread.a).next(thread.b, byte_);
  if (next && *next != NumberAutomaton::kDead) {
    push({Kind::kNumber, thread.a, *next, thread.stack});
  }
  return next.has_value();
}

// ---- Ends ---------------------------------------------------------------------------------------

void JsonAutomaton::Step::leave(uint32_t stack) {
  to_.depth = from_.depth - 1;
  if (to_.text_depth > to_.depth) {
    to_.text_depth = 0;
    to_.text = 0;
  }
  if (to_.guessed != kManyGuessed && to_.guessed_depth > to_.depth &&
      (to_.guessed_depth & kBegun) == 0) {
    to_.guessed = to_.guessed_depth = 0;  // nothing comes in that array any more
  }
  end_value(stack);
}

/// The state of an array that tells values apart, after an item that ends now.
std::optional<ArrayStateId> JsonAutomaton::Step::with_item(const Entry& entry) {
  ArrayStates& arrays = self_.plans_.arrays();
  if (from_.text == kUnknownText) {
    const ArrayStateId after = arrays.with_other_item(entry.state);
    if (arrays.tells_values(after)) {
      guess(to_, after, to_.depth);
    }
    return after;
  }
  std::string text = self_.recorded(from_.text);
  if (!ending_number_) {  // a number ends before this byte, all else with it
    text += static_cast<char>(byte_);
  }
  const ValueId item =
      arrays.store().add(parse_json(std::string_view(text).substr(entry.text_start), "item"));
  return arrays.takes(entry.state, item) ? std::optional(arrays.with_item(entry.state, item))
                                         : std::nullopt;
}

void JsonAutomaton::Step::end_value(uint32_t stack) {
  for (const Entry& entry : self_.stacks_[stack]) {
    switch (entry.kind) {
      case Entry::Kind::kEnd:
        push({});
        break;
      case Entry::Kind::kObject:
        push({Kind::kObjectNext, entry.state, 0, entry.stack});
        break;
      case Entry::Kind::kArray:
        push({Kind::kArrayNext, entry.state, 0, entry.stack});
        break;
      case Entry::Kind::kUniqueArray: {
        if (const auto state = with_item(entry)) {
          push({Kind::kArrayNext, *state, 0, entry.stack});
        }
        break;
      }
    }
  }
}

/// Values that begin here: those with the same goal are read once, for all their owners.
void JsonAutomaton::Step::settle_values() {
  std::sort(values_.begin(), values_.end());
  for (size_t i = 0; i < values_.size();) {
    const FormulaId goal = values_[i].first;
    std::vector<Entry> entries;
    for (; i < values_.size() && values_[i].first == goal; ++i) {
      entries.push_back(values_[i].second);
    }
    push({Kind::kValue, goal, 0, self_.intern_stack(std::move(entries))});
  }
}

StateId JsonAutomaton::next(StateId state, uint8_t byte) {
  if (state == kDead) {
    return kDead;
  }
  const uint64_t key = static_cast<uint64_t>(state) << 8 | byte;
  if (const StateId found = transitions_.find(key); found != FlatMap::kNone) {
    return found;
  }
  plans_.begin_reading();
  const StateId result = Step(*this, state, byte).run();
  transitions_.add(key, result);
  return result;
}

}  // namespace specdec
