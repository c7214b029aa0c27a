// Steps of JsonAutomaton::Step within lists and objects.
#include <algorithm>

#include "grammar/json/json_step.h"

namespace specdec {

// ---- Lists --------------------------------------------------------------------------------------

void JsonAutomaton::Step::open_array(ArrayStateId state, uint32_t stack) {
  if (self_.plans_.arrays().may_end(state)) {
    push({Kind::kArrayOpen, state, 0, stack});
  }
  add_items(state, stack);
}

void JsonAutomaton::Step::add_items(ArrayStateId state, uint32_t stack) {
  const bool unique = self_.plans_.arrays().tells_values(state);
  uint32_t start = 0;
  if (unique) {
    recording_now_ = true;  // the item begins with the next byte
    if (to_.text_depth == 0 || to_.text_depth == to_.depth) {
      to_.text_depth = to_.depth;
      to_.text = 0;
    } else if (!appended_) {
      to_.text = recorded_with(byte_);
      appended_ = true;
    }
    start = to_.text == kUnknownText ? 0 : self_.texts_.length(to_.text);
  }
  if (to_.guessed != 0 && to_.guessed_depth == to_.depth) {
    to_.guessed_depth |= kBegun;
  }
  const Entry::Kind kind = unique ? Entry::Kind::kUniqueArray : Entry::Kind::kArray;
  for (const Choice& choice : self_.plans_.arrays().items(state)) {
    values_.push_back({choice.goal, {kind, choice.next, stack, start}});
  }
}

/// Goes on after the beginning of a list or object, or one of its parts; true when another part
/// must come.
bool JsonAutomaton::Step::goes_on(const Thread& thread, const Container& container, bool may_end) {
  const bool next = thread.kind == container.next;
  if (byte_ == container.end && may_end && !(next && style(Style::kIndent))) {
    leave(thread.stack);
  } else if (byte_ == '\n' && next && may_end && style(Style::kIndent)) {
    to_.pad = line(from_.depth - 1) & ~kNewline;
    push({container.close, thread.a, 0, thread.stack});
  } else if (byte_ == ',' && next) {
    to_.pad = style(Style::kSpaced) ? 1 : line(from_.depth);
    return true;
  }
  return false;
}

void JsonAutomaton::Step::array(const Thread& thread) {
  constexpr Container kArray = {']', Kind::kArrayNext, Kind::kArrayClose};
  if (goes_on(thread, kArray, self_.plans_.arrays().may_end(thread.a))) {
    add_items(thread.a, thread.stack);
  }
}

// ---- Objects ------------------------------------------------------------------------------------

void JsonAutomaton::Step::open_object(ObjectStateId state, uint32_t stack) {
  if (self_.plans_.objects().choices(state).may_end) {
    push({Kind::kObjectOpen, state, 0, stack});
  }
  key_may_come(state, stack);
}

void JsonAutomaton::Step::object(const Thread& thread) {
  constexpr Container kObject = {'}', Kind::kObjectNext, Kind::kObjectClose};
  if (goes_on(thread, kObject, self_.plans_.objects().choices(thread.a).may_end)) {
    key_may_come(thread.a, thread.stack);
  }
}

void JsonAutomaton::Step::key_may_come(ObjectStateId state, uint32_t stack) {
  const ObjectChoices& choices = self_.plans_.objects().choices(state);
  const auto any = [](const std::vector<bool>& list) {
    return std::find(list.begin(), list.end(), true) != list.end();
  };
  if (any(choices.names) || any(choices.classes)) {
    push({Kind::kKeyStart, state, 0, stack});
  }
}

void JsonAutomaton::Step::key_start(const Thread& thread) {
  if (byte_ != '"') {
    return;
  }
  const ObjectPlan& plan = self_.plans_.objects().plan(thread.a);
  const ObjectChoices& choices = self_.plans_.objects().choices(thread.a);
  KeyState state;
  state.object = thread.a;
  state.last = static_cast<uint32_t>(plan.names.size());
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    state.classes.push_back(choices.classes[i] ? plan.classes[i].language : RegexStore::kNothing);
  }
  push_key(std::move(state), thread.stack);
}

void JsonAutomaton::Step::push_key(KeyState state, uint32_t stack) {
  if (self_.alive(state)) {
    push({Kind::kKey, self_.keys_.intern(std::move(state)), 0, stack});
  }
}

void JsonAutomaton::Step::key(const Thread& thread) {
  KeyState state = self_.keys_[thread.a];
  if (byte_ == '"' && state.decoder.idle()) {
    return end_key(state, thread.stack);
  }
  std::optional<char32_t> point;
  if (!state.decoder.take(byte_, self_.options_.escapes, point)) {
    return;
  }
  if (point) {
    narrow(state, *point);
  }
  push_key(std::move(state), thread.stack);
}

void JsonAutomaton::Step::narrow(KeyState& state, char32_t point) {
  const std::vector<PropertyPlan>& names = self_.plans_.objects().plan(state.object).names;
  const auto letter = [&](uint32_t i) -> int64_t {
    const std::u32string& name = self_.formulas_.name_points(names[i].name);
    return name.size() > state.length ? static_cast<int64_t>(name[state.length]) : -1;
  };
  while (state.first < state.last && letter(state.first) < static_cast<int64_t>(point)) {
    ++state.first;
  }
  uint32_t last = state.first;
  while (last < state.last && letter(last) == static_cast<int64_t>(point)) {
    ++last;
  }
  state.last = last;
  if (state.first == state.last) {
    state.first = state.last = 0;
  }
  for (RegexId& language : state.classes) {
    language = self_.formulas_.regexes().next(language, point);
  }
  const bool tells = self_.plans_.objects().names_matter(state.object);
  state.text = tells ? self_.key_texts_.add(state.text, point) : 0;
  state.length = tells || state.first < state.last ? state.length + 1 : 0;
}

void JsonAutomaton::Step::end_key(const KeyState& state, uint32_t stack) {
  const ObjectPlan& plan = self_.plans_.objects().plan(state.object);
  if (state.first < state.last &&
      self_.formulas_.name_points(plan.names[state.first].name).size() == state.length) {
    push_colon(self_.plans_.objects().property(state.object, state.first), stack);
    return;
  }
  const std::vector<uint32_t>& seen = self_.plans_.objects()[state.object].seen_others;
  if (std::binary_search(seen.begin(), seen.end(), state.text)) {
    return;
  }
  for (uint32_t i = 0; i < state.classes.size(); ++i) {
    if (self_.formulas_.regexes().matches_empty(state.classes[i])) {
      push_colon(self_.plans_.objects().other_property(state.object, i, state.text), stack);
      return;
    }
  }
}

void JsonAutomaton::Step::push_colon(std::vector<Choice> choices, uint32_t stack) {
  if (!choices.empty()) {
    push({Kind::kColon, self_.choices_.intern(std::move(choices)), 0, stack});
  }
}

void JsonAutomaton::Step::colon(const Thread& thread) {
  if (byte_ != ':') {
    return;
  }
  to_.pad = style(Style::kSpaced) || style(Style::kIndent) ? 1 : 0;
  for (const Choice& choice : self_.choices_[thread.a]) {
    values_.push_back({choice.goal, {Entry::Kind::kObject, choice.next, thread.stack, 0}});
  }
}

}  // namespace specdec
