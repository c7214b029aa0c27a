#include "grammar/json_automaton.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace specdec {
namespace {

using Ranges = std::vector<CodePoints::Range>;

bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

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

StateId JsonAutomaton::start() {
  if (!plans_.possible(root_)) {
    return kDead;
  }
  return intern({}, {{Kind::kValue, root_, 0, 1}});
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
