#include "grammar/json_automaton.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/error.h"

namespace specdec {
namespace {

using Ranges = std::vector<CodePoints::Range>;

bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

bool is_space(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

bool is_in(const Ranges& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CodePoints::Range& range) {
    return range.first <= c && c <= range.last;
  });
}

}  // namespace

// ---- What is alive -----------------------------------------------------------------------------

bool JsonAutomaton::alive(const StringState& state) {
  RegexStore& regexes = formulas_.regexes();
  if (state.decoder.idle()) {
    return true;  // the language and the length have been looked at with the last character
  }
  return state.max > 0 && regexes.goes_on(state.language, state.decoder.reach(options_.escapes));
}

std::optional<std::u32string> JsonAutomaton::fresh_word(const KeyState& state, RegexId language) {
  const ObjectPlan& plan = plans_.object_plan(state.object);
  const std::vector<uint32_t>& seen = plans_.object(state.object).seen_others;
  for (std::u32string& word :
       formulas_.regexes().list(language, state.last - state.first + seen.size() + 1)) {
    const bool known =
        std::any_of(plan.names.begin() + state.first, plan.names.begin() + state.last,
                    [&](const PropertyPlan& property) {
                      const std::u32string& name = formulas_.name_points(property.name);
                      return std::u32string_view(name).substr(state.length) == word;
                    });
    uint32_t text = state.text;
    for (const char32_t c : seen.empty() ? std::u32string() : word) {
      text = key_texts_.append(text, c);
    }
    if (!known && !std::binary_search(seen.begin(), seen.end(), text)) {
      return std::move(word);
    }
  }
  return std::nullopt;
}

bool JsonAutomaton::alive(const KeyState& state) {
  RegexStore& regexes = formulas_.regexes();
  const ObjectChoices& choices = plans_.choices(state.object);
  const ObjectPlan& plan = plans_.object_plan(state.object);
  const bool idle = state.decoder.idle();
  const Ranges reach = idle ? Ranges() : state.decoder.reach(options_.escapes);
  for (uint32_t i = state.first; i < state.last; ++i) {
    const std::u32string& name = formulas_.name_points(plan.names[i].name);
    const bool fits = idle || (name.size() > state.length && is_in(reach, name[state.length]));
    if (choices.names[i] && fits) {
      return true;
    }
  }
  for (const RegexId language : state.classes) {
    if (language != RegexStore::kNothing && (idle || regexes.goes_on(language, reach)) &&
        (!regexes.is_finite(language) || fresh_word(state, language))) {
      return true;
    }
  }
  return false;
}

std::string JsonAutomaton::recorded(uint32_t text) const {
  std::string result;
  for (const uint32_t byte : texts_.symbols(text)) {
    result += static_cast<char>(byte);
  }
  return result;
}

const NumberTexts& JsonAutomaton::number_texts(uint32_t plan) {
  if (number_texts_.size() <= plan) {
    number_texts_.resize(plan + 1);
  }
  if (number_texts_[plan] == nullptr) {
    number_texts_[plan] =
        std::make_unique<const NumberTexts>(plans_.number(plan), options_.numbers);
  }
  return *number_texts_[plan];
}

std::optional<uint32_t> JsonAutomaton::next_number(uint32_t from, uint8_t byte) {
  NumberState state = numbers_[from];
  const auto phase = after(state.phase, byte);
  if (!phase) {
    return std::nullopt;
  }
  const uint64_t key = uint64_t{from} << 8 | byte;
  if (const uint32_t found = number_transitions_.find(key); found != FlatMap::kNone) {
    return found;
  }
  const NumberTexts& texts = number_texts(state.plan);
  const std::string text = texts.representative(recorded(state.text) + static_cast<char>(byte));
  uint32_t next = kNoNumber;
  if (texts.can_complete(text)) {
    state.phase = *phase;
    state.complete = texts.is_complete(text);
    state.text = 0;
    for (const char c : text) {
      state.text = texts_.append(state.text, static_cast<uint8_t>(c));
    }
    next = numbers_.intern(state);
  }
  number_transitions_.add(key, next);
  return next;
}

std::optional<JsonAutomaton::NumberPhase> JsonAutomaton::after(NumberPhase phase, uint8_t byte) {
  using P = NumberPhase;
  const bool whole = phase == P::kZero || phase == P::kDigits;
  if (is_digit(byte)) {
    switch (phase) {
      case P::kStart:
      case P::kMinus:
        return byte == '0' ? P::kZero : P::kDigits;
      case P::kZero:
        return std::nullopt;
      case P::kDigits:
        return P::kDigits;
      case P::kPoint:
      case P::kFraction:
        return P::kFraction;
      default:
        return P::kExponent;
    }
  }
  if (byte == '-' && phase == P::kStart) {
    return P::kMinus;
  }
  if (byte == '.' && whole) {
    return P::kPoint;
  }
  if ((byte == 'e' || byte == 'E') && (whole || phase == P::kFraction)) {
    return P::kLetter;
  }
  if ((byte == '-' || byte == '+') && phase == P::kLetter) {
    return P::kSign;
  }
  return std::nullopt;
}

// ---- One byte ----------------------------------------------------------------------------------

/// The threads of a state, one byte further.
class JsonAutomaton::Step {
 public:
  Step(JsonAutomaton& self, StateId from, uint8_t byte)
      : self_(self), from_(self.states_[from]), byte_(byte) {
    to_.depth = from_.depth;
    to_.text = from_.text;
    to_.text_depth = from_.text_depth;
  }

  StateId run() {
    if (from_.pad != 0) {
      pad();
    } else {
      take_all();
    }
    settle_values();
    if (to_.text_depth != 0) {
      to_.text = recording_now_ ? to_.text : recorded_with(byte_);
    }
    return self_.intern(to_, std::move(threads_));
  }

 private:
  using Style = WhitespaceStyle::Kind;

  bool style(Style kind) const { return self_.options_.whitespace.kind == kind; }

  uint32_t line(uint32_t depth) const {
    return style(Style::kIndent) ? kNewline | depth * self_.options_.whitespace.limit : 0;
  }

  /// White space that must come: the next piece of it, or the end of an empty list or object.
  void pad() {
    const bool newline = (from_.pad & kNewline) != 0;
    if (byte_ == (newline ? '\n' : ' ')) {
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

  bool optional_space() const {
    return style(Style::kAny) && is_space(byte_) && from_.spaces < self_.options_.whitespace.limit;
  }

  void take_all() {
    for (const Thread& thread : from_.threads) {
      if (thread.kind != Kind::kNumber) {
        take(thread);
      } else if (!number(thread) && self_.numbers_[thread.a].complete) {
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

  void take(const Thread& thread) {
    const bool inside = thread.kind == Kind::kString || thread.kind == Kind::kKey ||
                        (thread.kind == Kind::kLiteral);
    const bool first = thread.kind == Kind::kValue && from_.depth == 0;
    if (!inside && !first && thread.kind != Kind::kDone && optional_space()) {
      to_.spaces = from_.spaces + 1;
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

  void push(const Thread& thread) { threads_.push_back(thread); }

  uint32_t recorded_with(uint8_t byte) {
    return to_.text == kUnknownText ? kUnknownText : self_.texts_.append(to_.text, byte);
  }

  // -- Values

  void value(const Thread& thread) {
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
          push({Kind::kObjectOpen, state, 0, thread.stack});
          key_may_come(state, thread.stack);
        }
        return;
      default:
        for (const uint32_t id : plan.numbers) {
          number({Kind::kNumber, self_.numbers_.intern({id, NumberPhase::kStart, 0, false}), 0,
                  thread.stack});
        }
    }
  }

  void enter() {
    to_.depth = from_.depth + 1;
    to_.pad = line(to_.depth);
  }

  void literal_start(const ValuePlan& plan, uint32_t stack) {
    const std::array allowed = {plan.can_be_null, plan.can_be_false, plan.can_be_true};
    for (uint32_t i = 0; i < kLiterals.size(); ++i) {
      if (allowed[i] && static_cast<uint8_t>(kLiterals[i].front()) == byte_) {
        push({Kind::kLiteral, i, 1, stack});
      }
    }
  }

  void literal(const Thread& thread) {
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

  void string(const Thread& thread) {
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

  // -- Numbers

  /// False when the byte is no part of this number.
  bool number(const Thread& thread) {
    const auto next = self_.next_number(thread.a, byte_);
    if (next && *next != kNoNumber) {
      push({Kind::kNumber, *next, 0, thread.stack});
    }
    return next.has_value();
  }

  // -- Lists

  void open_array(ArrayStateId state, uint32_t stack) {
    if (self_.plans_.array_may_end(state)) {
      push({Kind::kArrayOpen, state, 0, stack});
    }
    add_items(state, stack);
  }

  void add_items(ArrayStateId state, uint32_t stack) {
    const bool unique = self_.plans_.array_plan(state).unique;
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
    const Entry::Kind kind = unique ? Entry::Kind::kUniqueArray : Entry::Kind::kArray;
    for (const Choice& choice : self_.plans_.items(state)) {
      values_.push_back({choice.goal, {kind, choice.next, stack, start}});
    }
  }

  void array(const Thread& thread) {
    const bool may_end = self_.plans_.array_may_end(thread.a);
    const bool next = thread.kind == Kind::kArrayNext;
    if (byte_ == ']' && may_end && !(next && style(Style::kIndent))) {
      leave(thread.stack);
    } else if (byte_ == '\n' && next && may_end && style(Style::kIndent)) {
      to_.pad = line(from_.depth - 1) & ~kNewline;
      push({Kind::kArrayClose, thread.a, 0, thread.stack});
    } else if (byte_ == ',' && next) {
      to_.pad = style(Style::kSpaced) ? 1 : line(from_.depth);
      add_items(thread.a, thread.stack);
    }
  }

  // -- Objects

  void object(const Thread& thread) {
    const bool may_end = self_.plans_.choices(thread.a).may_end;
    const bool next = thread.kind == Kind::kObjectNext;
    if (byte_ == '}' && may_end && !(next && style(Style::kIndent))) {
      leave(thread.stack);
    } else if (byte_ == '\n' && next && may_end && style(Style::kIndent)) {
      to_.pad = line(from_.depth - 1) & ~kNewline;
      push({Kind::kObjectClose, thread.a, 0, thread.stack});
    } else if (byte_ == ',' && next) {
      to_.pad = style(Style::kSpaced) ? 1 : line(from_.depth);
      key_may_come(thread.a, thread.stack);
    }
  }

  void key_may_come(ObjectStateId state, uint32_t stack) {
    const ObjectChoices& choices = self_.plans_.choices(state);
    const auto any = [](const std::vector<bool>& list) {
      return std::find(list.begin(), list.end(), true) != list.end();
    };
    if (any(choices.names) || any(choices.classes)) {
      push({Kind::kKeyStart, state, 0, stack});
    }
  }

  void key_start(const Thread& thread) {
    if (byte_ != '"') {
      return;
    }
    const ObjectPlan& plan = self_.plans_.object_plan(thread.a);
    const ObjectChoices& choices = self_.plans_.choices(thread.a);
    KeyState state;
    state.object = thread.a;
    state.last = static_cast<uint32_t>(plan.names.size());
    for (size_t i = 0; i < plan.classes.size(); ++i) {
      state.classes.push_back(choices.classes[i] ? plan.classes[i].language : RegexStore::kNothing);
    }
    push_key(std::move(state), thread.stack);
  }

  void push_key(KeyState state, uint32_t stack) {
    if (self_.alive(state)) {
      push({Kind::kKey, self_.keys_.intern(std::move(state)), 0, stack});
    }
  }

  void key(const Thread& thread) {
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

  void narrow(KeyState& state, char32_t point) {
    const std::vector<PropertyPlan>& names = self_.plans_.object_plan(state.object).names;
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
    const bool tells = self_.plans_.names_matter(state.object);
    state.text = tells ? self_.key_texts_.append(state.text, point) : 0;
    state.length = tells || state.first < state.last ? state.length + 1 : 0;
  }

  void end_key(const KeyState& state, uint32_t stack) {
    const ObjectPlan& plan = self_.plans_.object_plan(state.object);
    if (state.first < state.last &&
        self_.formulas_.name_points(plan.names[state.first].name).size() == state.length) {
      push_colon(self_.plans_.property(state.object, state.first), stack);
      return;
    }
    const std::vector<uint32_t>& seen = self_.plans_.object(state.object).seen_others;
    if (std::binary_search(seen.begin(), seen.end(), state.text)) {
      return;
    }
    for (uint32_t i = 0; i < state.classes.size(); ++i) {
      if (self_.formulas_.regexes().matches_empty(state.classes[i])) {
        push_colon(self_.plans_.other_property(state.object, i, state.text), stack);
        return;
      }
    }
  }

  void push_colon(std::vector<Choice> choices, uint32_t stack) {
    if (!choices.empty()) {
      push({Kind::kColon, self_.choices_.intern(std::move(choices)), 0, stack});
    }
  }

  void colon(const Thread& thread) {
    if (byte_ != ':') {
      return;
    }
    to_.pad = style(Style::kSpaced) || style(Style::kIndent) ? 1 : 0;
    for (const Choice& choice : self_.choices_[thread.a]) {
      values_.push_back({choice.goal, {Entry::Kind::kObject, choice.next, thread.stack, 0}});
    }
  }

  // -- Ends

  void leave(uint32_t stack) {
    to_.depth = from_.depth - 1;
    if (to_.text_depth > to_.depth) {
      to_.text_depth = 0;
      to_.text = 0;
    }
    end_value(stack);
  }

  /// The state of a unique array after an item that ends now.
  ArrayStateId with_item(const Entry& entry) const {
    if (from_.text == kUnknownText) {
      return entry.state;
    }
    std::string text = self_.recorded(from_.text);
    if (!ending_number_) {  // a number ends before this byte, all else with it
      text += static_cast<char>(byte_);
    }
    const JsonValue item = parse_json(std::string_view(text).substr(entry.text_start), "item");
    return self_.plans_.with_item(entry.state, item);
  }

  void end_value(uint32_t stack) {
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
          const ArrayStateId state = with_item(entry);
          if (self_.plans_.feasible_array(state)) {
            push({Kind::kArrayNext, state, 0, entry.stack});
          }
          break;
        }
      }
    }
  }

  /// Values that begin here: those with the same goal are read once, for all their owners.
  void settle_values() {
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

StateId JsonAutomaton::start() {
  if (!plans_.possible(root_)) {
    return kDead;
  }
  return intern({}, {{Kind::kValue, root_, 0, 1}});
}

StateId JsonAutomaton::next(StateId state, uint8_t byte) {
  if (state == kDead) {
    return kDead;
  }
  const uint64_t key = static_cast<uint64_t>(state) << 8 | byte;
  if (const StateId found = transitions_.find(key); found != FlatMap::kNone) {
    return found;
  }
  const StateId result = Step(*this, state, byte).run();
  transitions_.add(key, result);
  return result;
}

bool JsonAutomaton::is_complete(StateId state) {
  const State& here = states_[state];
  return std::any_of(here.threads.begin(), here.threads.end(), [&](const Thread& thread) {
    if (thread.kind != Kind::kNumber) {
      return thread.kind == Kind::kDone;
    }
    const std::vector<Entry>& entries = stacks_[thread.stack];
    return std::any_of(entries.begin(), entries.end(),
                       [](const Entry& entry) { return entry.kind == Entry::Kind::kEnd; }) &&
           numbers_[thread.a].complete;
  });
}

}  // namespace specdec
