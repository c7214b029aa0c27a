// What masks need to know of a state of a JSON text: which bytes may come, and how a string goes
// on.
#include <algorithm>

#include "core/error.h"
#include "grammar/json/json_automaton.h"
#include "grammar/json/json_partial_item.h"

namespace specdec {
namespace {

/// A name that no property has.
constexpr uint32_t kNoText = ~uint32_t{0};

void add(Automaton::Bytes& bytes, std::string_view some) {
  for (const char c : some) {
    bytes.set(static_cast<uint8_t>(c));
  }
}

void add_of_string(Automaton::Bytes& bytes, const JsonStringDecoder& decoder) {
  switch (decoder.phase) {
    case JsonStringDecoder::Phase::kBackslash:
      return add(bytes, "\"\\/bfnrtu");
    case JsonStringDecoder::Phase::kHex:
    case JsonStringDecoder::Phase::kLowHex:
      return add(bytes, "0123456789abcdefABCDEF");
    case JsonStringDecoder::Phase::kLowSlash:
      return add(bytes, "\\");
    case JsonStringDecoder::Phase::kLowLetter:
      return add(bytes, "u");
    default:
      bytes.set();
  }
}

/// Sorts the words, which are sorted but for the newest, from that place on; of these, most are: an
/// object's names.
void sort_newest(std::vector<OpenString::Word>& words, size_t newest) {
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(newest);
  const auto tail = std::is_sorted_until(begin, words.end());
  std::sort(tail, words.end());
  std::inplace_merge(begin, tail, words.end());
  std::inplace_merge(words.begin(), begin, words.end());
}

/// A name with which an item may become a value that is told apart may come only if the item may
/// become another one, too. The names stand from place `names` on, those of such values behind
/// them.
void ask_of_names(std::vector<OpenString::Word>& words, size_t names, size_t told_apart) {
  if (names == told_apart) {
    return;
  }
  const auto told = words.begin() + static_cast<std::ptrdiff_t>(told_apart);
  std::sort(told, words.end());
  for (size_t i = names; i < told_apart; ++i) {
    OpenString::Word& name = words[i];
    if (name.open && std::binary_search(told, words.end(), OpenString::Word{name.rest})) {
      name.open = false;
      name.by_text = true;
    }
  }
}

/// What follows in a text that begins with another one; nothing when it does not.
std::optional<std::u32string> rest_of(const GrowingTrie& texts, uint32_t text, uint32_t beginning) {
  std::u32string rest;
  for (; texts.length(text) > texts.length(beginning); text = texts.parent(text)) {
    rest.push_back(texts.symbol(text));
  }
  std::reverse(rest.begin(), rest.end());
  return text == beginning ? std::optional(rest) : std::nullopt;
}

}  // namespace

Automaton::Bytes JsonAutomaton::candidates(const State& state, const Thread& thread) {
  Bytes bytes;
  switch (thread.kind) {
    case Kind::kValue: {
      const ValuePlan& plan = plans_.value(thread.a);
      add(bytes, plan.can_be_null ? "n" : "");
      add(bytes, plan.can_be_false ? "f" : "");
      add(bytes, plan.can_be_true ? "t" : "");
      add(bytes, plan.strings.empty() ? "" : "\"");
      add(bytes, plan.numbers.empty() ? "" : "-0123456789");
      add(bytes, plan.arrays.empty() ? "" : "[");
      add(bytes, plan.objects.empty() ? "" : "{");
      break;
    }
    case Kind::kString:
      add_of_string(bytes, strings_[thread.a].decoder);
      return bytes;
    case Kind::kKey:
      add_of_string(bytes, keys_[thread.a].decoder);
      return bytes;
    case Kind::kNumber:
      add(bytes, numbers(thread.a).candidates(thread.b));
      if (numbers(thread.a).is_complete(thread.b)) {
        add(bytes, ",]}\n");
      }
      break;
    case Kind::kLiteral:
      add(bytes, "ulnarse");
      return bytes;
    case Kind::kArrayOpen:
    case Kind::kArrayClose:
      add(bytes, "]");
      break;
    case Kind::kArrayNext:
      add(bytes, ",]\n");
      break;
    case Kind::kKeyStart:
      add(bytes, "\"");
      break;
    case Kind::kColon:
      add(bytes, ":");
      break;
    case Kind::kObjectOpen:
    case Kind::kObjectClose:
      add(bytes, "}");
      break;
    case Kind::kObjectNext:
      add(bytes, ",}\n");
      break;
    case Kind::kDone:
      return bytes;
  }
  add(bytes, options_.whitespace.kind == WhitespaceStyle::Kind::kAny ? " \n\r\t" : "");
  add(bytes, state.pad != 0 ? " \n" : "");
  return bytes;
}

Automaton::Bytes JsonAutomaton::candidates(StateId id) {
  Bytes bytes;
  const State& state = states_[id];
  for (const Thread& thread : state.threads) {
    bytes |= candidates(state, thread);
  }
  return bytes;
}

StateId JsonAutomaton::closed(const State& state, std::vector<Thread> threads) {
  State next;
  next.depth = state.depth;
  next.text = state.text_depth == 0 ? 0 : kUnknownText;
  next.text_depth = state.text_depth;
  for (const Thread& thread : threads) {
    if (thread.kind == Kind::kArrayNext && plans_.arrays().tells_values(thread.a)) {
      guess(next, thread.a, state.depth);
    }
  }
  return intern(next, std::move(threads));
}

/// Notes that an item of unknown value ended.
void JsonAutomaton::guess(State& state, ArrayStateId array, uint32_t depth) {
  const bool same = state.guessed == array + 1 && state.guessed_depth == depth;
  state.guessed = state.guessed == 0 || same ? array + 1 : kManyGuessed;
  state.guessed_depth = depth;
}

/// After an item whose value is none of those that are told apart, only the next one, which must
/// differ from it, may depend on it: unless it can become many values.
bool JsonAutomaton::depends_on_string(StateId id) {
  const State state = states_[id];
  if (state.guessed == 0) {
    return false;
  }
  if (state.guessed == kManyGuessed || !plans_.arrays().plan(state.guessed - 1).unique) {
    return true;
  }
  const uint32_t depth = state.guessed_depth & ~kBegun;
  const bool begun = (state.guessed_depth & kBegun) != 0;
  return begun &&
         (state.depth < depth || std::ranges::none_of(state.threads, [&](const Thread& thread) {
            return PartialItem(*this, state).has_others(thread);
          }));
}

/// True when the thread is in an item of an array that tells values apart, and all of its text is
/// known.
bool JsonAutomaton::item_is_open(const State& state, const Thread& thread) {
  const bool container = thread.kind != Kind::kValue && thread.kind != Kind::kString &&
                         thread.kind != Kind::kNumber && thread.kind != Kind::kLiteral;
  return state.text_depth != 0 && state.text != kUnknownText &&
         state.depth >= state.text_depth + (container ? 1 : 0);
}

/// Threads after a value, as Step::end_value makes them, but for items of unique arrays, whose
/// value is not known here.
std::vector<JsonAutomaton::Thread> JsonAutomaton::after_value(uint32_t stack) {
  std::vector<Thread> threads;
  for (const Entry& entry : stacks_[stack]) {
    const Kind kind = entry.kind == Entry::Kind::kEnd      ? Kind::kDone
                      : entry.kind == Entry::Kind::kObject ? Kind::kObjectNext
                                                           : Kind::kArrayNext;
    const uint32_t state = entry.kind == Entry::Kind::kUniqueArray
                               ? plans_.arrays().with_other_item(entry.state)
                               : entry.state;
    threads.push_back(kind == Kind::kDone ? Thread() : Thread{kind, state, 0, entry.stack});
  }
  return threads;
}

void JsonAutomaton::add_name_parts(const Thread& thread, const State& state, OpenString& string) {
  const KeyState key = keys_[thread.a];
  const ObjectPlan& plan = plans_.objects().plan(key.object);
  for (uint32_t i = 0; i < key.classes.size(); ++i) {
    if (key.classes[i] == RegexStore::kNothing) {
      continue;
    }
    OpenString::Part part;
    part.language = key.classes[i];
    part.is_name = true;
    std::vector<Choice> choices = plans_.objects().other_property(key.object, i, kNoText);
    part.closed =
        closed(state, {{Kind::kColon, choices_.intern(std::move(choices)), 0, thread.stack}});
    part.text_matters = part.narrow = formulas_.regexes().is_finite(part.language);
    string.parts.push_back(part);
  }
  const ObjectChoices& choices = plans_.objects().choices(key.object);
  string.words.reserve(string.words.size() + key.last - key.first);
  for (uint32_t i = key.first; i < key.last; ++i) {
    const std::u32string& name = formulas_.name_points(plan.names[i].name);
    string.words.push_back({name.substr(key.length), choices.names[i]});
  }
  for (const uint32_t text : plans_.objects()[key.object].seen_others) {
    auto rest = rest_of(key_texts_, text == kNoText ? 0 : text, key.text);
    if (rest) {
      string.words.push_back({*std::move(rest), false});
    }
  }
}

bool JsonAutomaton::describe(StateId id, OpenString& string) {
  const State state = states_[id];
  const Kind kind = state.threads.front().kind;
  if (state.pad != 0 || (kind != Kind::kString && kind != Kind::kKey)) {
    return false;
  }
  string.decoder = kind == Kind::kString ? strings_[state.threads.front().a].decoder
                                         : keys_[state.threads.front().a].decoder;
  if (!string.decoder.idle()) {
    return false;
  }
  string.escapes = options_.escapes;
  PartialItem item(*this, state);
  for (const Thread& thread : state.threads) {
    const size_t words = string.words.size();
    const bool told_apart = item_is_open(state, thread);
    if (thread.kind == Kind::kKey) {
      add_name_parts(thread, state, string);
    } else {
      const StringState& text = strings_[thread.a];
      string.parts.push_back(
          {.language = text.language,
           .min = text.min,
           .max = text.max,
           .closed = closed(state, after_value(thread.stack)),
           .is_name = told_apart,
           .text_matters = false,
           .narrow = told_apart &&
                     (text.max != kUnbounded || formulas_.regexes().is_finite(text.language))});
    }
    if (told_apart) {
      const size_t names = string.words.size();
      item.add_words(thread, string);
      ask_of_names(string.words, words, names);
    }
    sort_newest(string.words, words);
  }
  return true;
}

}  // namespace specdec
