#include "grammar/json/json_automaton.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace specdec {
namespace {

using Ranges = std::vector<CodePoints::Range>;

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
  const ObjectPlan& plan = plans_.objects().plan(state.object);
  const std::vector<uint32_t>& seen = plans_.objects()[state.object].seen_others;
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
      text = key_texts_.add(text, c);
    }
    if (!known && !std::binary_search(seen.begin(), seen.end(), text)) {
      return std::move(word);
    }
  }
  return std::nullopt;
}

bool JsonAutomaton::alive(const KeyState& state) {
  RegexStore& regexes = formulas_.regexes();
  const ObjectChoices& choices = plans_.objects().choices(state.object);
  const ObjectPlan& plan = plans_.objects().plan(state.object);
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
  std::string bytes;
  for (; text != GrowingTrie::kRoot; text = texts_.parent(text)) {
    bytes += static_cast<char>(texts_.symbol(text));
  }
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

NumberAutomaton& JsonAutomaton::numbers(uint32_t plan) {
  if (numbers_.size() <= plan) {
    numbers_.resize(plan + 1);
  }
  if (numbers_[plan] == nullptr) {
    numbers_[plan] = number_automata_.find(plans_.number(plan), options_.numbers);
  }
  return *numbers_[plan];
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
           numbers(thread.a).is_complete(thread.b);
  });
}

}  // namespace specdec
