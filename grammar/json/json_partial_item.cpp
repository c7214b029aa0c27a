#include "grammar/json/json_partial_item.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/json/json_excluded_values.h"

namespace specdec {
namespace {

constexpr uint64_t kFewWays = 2;

/// How many bytes a character or escape of a JSON string takes, of which these are the first.
size_t written_size(std::string_view text) {
  const auto first = static_cast<uint8_t>(text.front());
  if (first != '\\') {
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  }
  constexpr size_t kEscape = 6;  // \uXXXX
  if (text.size() < 2 || text[1] != 'u') {
    return 2;
  }
  const bool pair =
      text.size() >= 4 && (text[2] == 'd' || text[2] == 'D') &&
      (text[3] == '8' || text[3] == '9' || (text[3] | 0x20) == 'a' || (text[3] | 0x20) == 'b');
  return pair ? 2 * kEscape : kEscape;
}

size_t count_texts(const std::vector<std::string>& texts) {
  return std::unordered_set<std::string_view>(texts.begin(), texts.end()).size();
}

/// Lists more until as many as are wanted are different by `count`, or all are listed.
template <class List, class Count>
std::vector<std::string> list_different(uint64_t wanted, const List& list, const Count& count) {
  for (uint64_t listed = wanted;; listed *= 2) {
    std::vector<std::string> texts = list(listed);
    if (texts.size() < listed || count(texts) >= wanted) {
      return texts;
    }
  }
}

}  // namespace

const std::string& JsonAutomaton::PartialItem::text() {
  if (!text_) {
    text_ = self_.recorded(state_.text);
  }
  return *text_;
}

/// Depth of the list or object whose part ends when what the thread is in ends.
uint32_t JsonAutomaton::PartialItem::depth_of(const Thread& thread) const {
  switch (thread.kind) {
    case Kind::kValue:
    case Kind::kString:
    case Kind::kNumber:
    case Kind::kLiteral:
    case Kind::kDone:
      return state_.depth;
    default:
      return state_.depth - 1;
  }
}

/// The text from where the item of an array begins.
std::string_view JsonAutomaton::PartialItem::text(const Entry& entry) {
  return std::string_view(text()).substr(entry.text_start);
}

/// Counts what an array refuses by the array alone.
JsonAutomaton::PartialItem::Refused JsonAutomaton::PartialItem::excluded_values() {
  return [this](const Entry& entry) {
    ArrayStates& arrays = plans_.arrays();
    const bool unique = entry.kind == Entry::Kind::kUniqueArray && arrays.plan(entry.state).unique;
    return unique ? arrays.count_excluded_values(entry.state) : 0;
  };
}

/// Counts what an array refuses of the values that the item may still become.
JsonAutomaton::PartialItem::Refused JsonAutomaton::PartialItem::left() {
  return [this](const Entry& entry) {
    const bool unique =
        entry.kind == Entry::Kind::kUniqueArray && plans_.arrays().plan(entry.state).unique;
    const ExcludedValues::Item item = {entry.state, state_.text, text(entry)};
    return unique ? self_.excluded_values_->left(item).size() : 0;
  };
}

/// Values that all arrays around refuse together, at most.
uint64_t JsonAutomaton::PartialItem::sum(const Thread& thread, const Refused& refused) {
  Sums known;
  return state_.text_depth == 0 ? 0 : sum(thread.stack, depth_of(thread), refused, known);
}

uint64_t JsonAutomaton::PartialItem::sum(uint32_t stack, uint32_t depth, const Refused& refused,
                                         Sums& known) {
  if (depth < state_.text_depth) {
    return 0;
  }
  if (const auto found = known.find(stack); found != known.end()) {
    return found->second;
  }
  uint64_t most = 0;
  const std::vector<Entry> entries = self_.stacks_[stack];
  for (const Entry& entry : entries) {
    most = std::max(most, refused(entry) + sum(entry.stack, depth - 1, refused, known));
  }
  return known[stack] = most;
}

bool JsonAutomaton::PartialItem::is_possible(const Thread& thread) {
  const auto enough = [&](const Refused& refused) {
    Enough look = {0, refused};
    return are_enough({{thread}}, thread.stack, depth_of(thread), look);
  };
  return sum(thread, excluded_values()) == 0 || enough(excluded_values()) || may_end(thread) ||
         enough(left()) || completion(thread).has_value();
}

bool JsonAutomaton::PartialItem::has_others(const Thread& thread) {
  std::vector<Part> parts;
  if (thread.kind != Kind::kNumber || state_.text != kUnknownText) {  // else its digits are unknown
    parts.push_back({thread});
  }
  const Refused refused = excluded_values();
  Enough look = {1, refused};
  return state_.text_depth != 0 && are_enough(parts, thread.stack, depth_of(thread), look);
}

/// True only when each array around can have a value of its item that it does not refuse, and
/// `spare` more. Different values of a part make different items of what is around it.
bool JsonAutomaton::PartialItem::are_enough(const std::vector<Part>& parts, uint32_t stack,
                                            uint32_t depth, Enough& enough) {
  if (depth < state_.text_depth) {
    return true;
  }
  if (!enough.tried.insert(stack).second) {
    return false;
  }
  const std::vector<Entry> entries = self_.stacks_[stack];
  return std::ranges::any_of(entries, [&](const Entry& entry) {
    std::vector<Part> around = parts;
    if (entry.kind == Entry::Kind::kUniqueArray) {
      const uint64_t refused = enough.refused(entry);
      const uint64_t needed = refused + enough.spare + 1;
      const auto gives_them = [&](const Part& part) {
        return has_many(part.thread, part.refused + needed);
      };
      if (needed > 1 && std::ranges::none_of(parts, gives_them)) {
        return false;
      }
      for (Part& part : around) {
        part.refused += refused;
      }
    } else if (entry.kind != Entry::Kind::kEnd) {
      const bool is_object = entry.kind == Entry::Kind::kObject;
      around.push_back({{is_object ? Kind::kObjectNext : Kind::kArrayNext, entry.state}});
    }
    return entry.kind == Entry::Kind::kEnd || are_enough(around, entry.stack, depth - 1, enough);
  });
}

/// True when the thread is in a number, which may end here. That is quickly told.
bool JsonAutomaton::PartialItem::may_end(const Thread& thread) {
  no_way_.clear();
  return thread.kind == Kind::kNumber && self_.numbers(thread.a).is_complete(thread.b) &&
         finish(text(), thread.stack, depth_of(thread), kFewWays).has_value();
}

/// Few ways are tried first: one of them is mostly taken.
std::optional<std::string> JsonAutomaton::PartialItem::completion(const Thread& thread) {
  const uint32_t depth = depth_of(thread);
  const uint64_t most = sum(thread, left()) + 1;
  const std::string begun = text().substr(0, complete_size(thread));
  no_way_.clear();
  for (uint64_t listed = std::min(kFewWays, most);; listed = std::min(4 * listed, most)) {
    for (const std::string& rest : rests(thread, listed)) {
      if (const auto outer = finish(begun + rest, thread.stack, depth, most)) {
        return rest + *outer;
      }
    }
    if (listed == most) {
      return std::nullopt;
    }
  }
}

// ---- How a value goes on ------------------------------------------------------------------------

/// True only when it leads to that many values.
bool JsonAutomaton::PartialItem::has_many(const Thread& thread, uint64_t many) {
  switch (thread.kind) {
    case Kind::kValue:
      return plans_.has_many(thread.a, many);
    case Kind::kString: {
      const StringState& string = self_.strings_[thread.a];
      return string.decoder.idle() &&
             plans_.has_many(StringPlan{string.language, string.min, string.max}, many);
    }
    case Kind::kNumber:
      return self_.numbers(thread.a).texts().has_completions(number_text(), many);
    case Kind::kArrayNext:
      return plans_.has_many_items_after(thread.a, many);
    case Kind::kKeyStart:
    case Kind::kObjectNext:
      return plans_.has_many_after(thread.a, many);
    case Kind::kKey: {
      const KeyState& key = self_.keys_[thread.a];
      return key.decoder.idle() &&
             plans_.has_many({key.object, key.first, key.last, key.length, &key.classes, key.text},
                             many);
    }
    case Kind::kColon:
      return std::ranges::any_of(self_.choices_[thread.a], [&](const Choice& choice) {
        return plans_.has_many(choice.goal, many);
      });
    default:
      return false;
  }
}

/// Rests of at least `most` different values, if there are so many.
std::vector<std::string> JsonAutomaton::PartialItem::rests(const Thread& thread, uint64_t most) {
  return list_different(
      most, [&](uint64_t listed) { return list_rests(thread, listed); },
      [&](const std::vector<std::string>& texts) {
        return thread.kind == Kind::kKey ? count_objects(thread, texts) : count_texts(texts);
      });
}

/// An object's names come in any order behind the first one: how many different objects these are.
size_t JsonAutomaton::PartialItem::count_objects(const Thread& key,
                                                 const std::vector<std::string>& rests) {
  const size_t quote = ExcludedValues::open_string(text());
  std::string begun = "{";
  begun.append(text(), quote, complete_size(key) - quote);
  std::unordered_set<ValueId> objects;
  for (const std::string& rest : rests) {
    objects.insert(plans_.arrays().store().add(parse_json(begun + rest, "item")));
  }
  return objects.size();
}

std::vector<std::string> JsonAutomaton::PartialItem::list_rests(const Thread& thread,
                                                                uint64_t most) {
  ValueLists& lists = plans_.lists();
  switch (thread.kind) {
    case Kind::kValue: {
      std::vector<std::string> texts;
      for (const ValueEntry& entry : lists.of(thread.a, most).entries) {
        texts.push_back(entry.text);
      }
      return texts;
    }
    case Kind::kString:
      return string_rests(self_.strings_[thread.a], most);
    case Kind::kNumber:
      return number_rests(self_.numbers(thread.a).texts(), most);
    case Kind::kLiteral:
      return {std::string(kLiterals[thread.a].substr(thread.b))};
    case Kind::kArrayOpen:
    case Kind::kArrayClose:
      return {"]"};
    case Kind::kArrayNext:
      return lists.array_rests(thread.a, true, most);
    case Kind::kObjectOpen:
    case Kind::kObjectClose:
      return {"}"};
    case Kind::kObjectNext:
      return lists.object_rests(thread.a, true, most);
    case Kind::kKeyStart: {
      std::vector<std::string> texts = lists.object_rests(thread.a, false, most + 1);
      std::erase(texts, "}");
      return texts;
    }
    case Kind::kKey:
      return name_rests(self_.keys_[thread.a], most);
    case Kind::kColon: {
      const std::vector<Choice> choices = self_.choices_[thread.a];
      return lists.value_rests(choices, most);
    }
    case Kind::kDone:
      return {""};
  }
  return {};
}

/// A number that may end comes first: a completion that only made it longer would never end.
std::vector<std::string> JsonAutomaton::PartialItem::number_rests(const NumberTexts& numbers,
                                                                  uint64_t most) {
  std::vector<std::string> texts = numbers.completions(number_text(), most);
  if (numbers.is_complete(number_text())) {
    texts.insert(texts.begin(), "");
  }
  return texts;
}

/// False when the character that has begun is not the word's first.
template <class Word>
bool JsonAutomaton::PartialItem::begins_well(const JsonStringDecoder& decoder,
                                             const Word& word) const {
  if (decoder.idle()) {
    return true;
  }
  const auto reach = decoder.reach(self_.options_.escapes);
  return !word.empty() && std::ranges::any_of(reach, [&](const CodePoints::Range& range) {
    return range.first <= word.front() && word.front() <= range.last;
  });
}

std::vector<std::string> JsonAutomaton::PartialItem::string_rests(const StringState& string,
                                                                  uint64_t most) {
  StringPlan plan{string.language, string.min, string.max};
  RegexStore& regexes = self_.formulas_.regexes();
  if (!string.decoder.idle()) {
    const RegexId any = regexes.repeat(regexes.one_of(CodePoints::all()), 0, std::nullopt);
    const RegexId first = regexes.one_of(CodePoints(string.decoder.reach(self_.options_.escapes)));
    plan = {regexes.all_of(plans_.bounded_language(plan), regexes.concat(first, any)), 0,
            kUnbounded};
  }
  std::vector<std::string> texts;
  for (const std::u32string& word : plans_.lists().words(plan, most)) {
    texts.push_back(to_json_string(to_utf8(word)).substr(1));
  }
  return texts;
}

std::vector<std::string> JsonAutomaton::PartialItem::name_rests(const KeyState& key,
                                                                uint64_t most) {
  KeyState open = key;
  if (!key.decoder.idle()) {
    RegexStore& regexes = self_.formulas_.regexes();
    const RegexId any = regexes.repeat(regexes.one_of(CodePoints::all()), 0, std::nullopt);
    const RegexId first = regexes.one_of(CodePoints(key.decoder.reach(self_.options_.escapes)));
    for (RegexId& language : open.classes) {
      language = regexes.all_of(language, regexes.concat(first, any));
    }
    const std::vector<PropertyPlan>& names = plans_.objects().plan(key.object).names;
    const auto fits = [&](uint32_t i) {
      const std::u32string& name = self_.formulas_.name_points(names[i].name);
      return begins_well(key.decoder, std::u32string_view(name).substr(key.length));
    };
    while (open.first < open.last && !fits(open.first)) {
      ++open.first;
    }
    while (open.first < open.last && !fits(open.last - 1)) {
      --open.last;
    }
  }
  return plans_.lists().name_rests(
      {open.object, open.first, open.last, open.length, &open.classes, open.text}, most);
}

/// How much of the text comes before a character that has begun.
size_t JsonAutomaton::PartialItem::complete_size(const Thread& thread) {
  const bool idle = thread.kind == Kind::kString ? self_.strings_[thread.a].decoder.idle()
                    : thread.kind == Kind::kKey  ? self_.keys_[thread.a].decoder.idle()
                                                 : true;
  if (idle) {
    return text().size();
  }
  const std::string_view all = text();
  size_t i = ExcludedValues::open_string(all) + 1;
  while (i < all.size()) {
    const size_t size = written_size(all.substr(i));
    if (i + size > all.size()) {
      return i;
    }
    i += size;
  }
  return all.size();
}

std::string_view JsonAutomaton::PartialItem::number_text() {
  const std::string_view all = text();
  const size_t before = all.find_last_not_of("+-.0123456789eE");
  return all.substr(before == std::string_view::npos ? 0 : before + 1);
}

// ---- What the arrays around take ----------------------------------------------------------------

/// What ends the outermost item when a value ended with the text.
std::optional<std::string> JsonAutomaton::PartialItem::finish(const std::string& text,
                                                              uint32_t stack, uint32_t depth,
                                                              uint64_t most) {
  if (no_way_.contains({stack, text})) {
    return std::nullopt;
  }
  const std::vector<Entry> entries = self_.stacks_[stack];
  for (const Entry& entry : entries) {
    if (auto rest = finish(entry, text, depth, most)) {
      return rest;
    }
  }
  no_way_.emplace(stack, text);
  return std::nullopt;
}

std::optional<std::string> JsonAutomaton::PartialItem::finish(const Entry& entry,
                                                              const std::string& text,
                                                              uint32_t depth, uint64_t most) {
  if (depth < state_.text_depth) {
    return "";
  }
  ArrayStates& arrays = plans_.arrays();
  ArrayStateId array = entry.state;
  if (entry.kind == Entry::Kind::kUniqueArray) {
    const ValueId value =
        arrays.store().add(parse_json(std::string_view(text).substr(entry.text_start), "item"));
    if (!arrays.takes(array, value)) {
      return std::nullopt;
    }
    array = arrays.with_item(array, value);
  }
  if (depth == state_.text_depth || entry.kind == Entry::Kind::kEnd) {
    return "";
  }
  for (uint64_t listed = std::min(kFewWays, most);; listed = std::min(4 * listed, most)) {
    const auto list = [&](uint64_t most_listed) {
      return entry.kind == Entry::Kind::kObject
                 ? plans_.lists().object_rests(entry.state, true, most_listed)
                 : plans_.lists().array_rests(array, true, most_listed);
    };
    const std::vector<std::string> rests = list_different(listed, list, count_texts);
    for (const std::string& rest : rests) {
      if (auto outer = finish(text + rest, entry.stack, depth - 1, most)) {
        return rest + *outer;
      }
    }
    if (listed == most || rests.size() < listed) {
      return std::nullopt;
    }
  }
}

// ---- Strings that are told apart ----------------------------------------------------------------

void JsonAutomaton::PartialItem::add_words(const Thread& thread, OpenString& string) {
  std::vector<std::pair<uint32_t, uint32_t>> open = {{thread.stack, depth_of(thread)}};
  for (size_t at = 0; at < open.size(); ++at) {  // grows meanwhile
    const auto [stack, depth] = open[at];
    if (depth < state_.text_depth) {
      continue;
    }
    const std::vector<Entry> entries = self_.stacks_[stack];
    for (const Entry& entry : entries) {
      if (entry.kind == Entry::Kind::kUniqueArray) {
        self_.excluded_values_->add_words({entry.state, state_.text, text(entry)}, string.words);
      }
      const std::pair<uint32_t, uint32_t> around = {entry.stack, depth - 1};
      if (entry.kind != Entry::Kind::kEnd && depth > 0 &&
          std::ranges::find(open, around) == open.end()) {
        open.push_back(around);
      }
    }
  }
}

}  // namespace specdec
