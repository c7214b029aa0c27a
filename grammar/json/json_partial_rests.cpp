// How the value of a partial item goes on.
#include <algorithm>

#include "grammar/json/different_texts.h"
#include "grammar/json/json_excluded_values.h"
#include "grammar/json/json_partial_item.h"

namespace specdec {

/// How many bytes a character or escape of a JSON string takes, of which these are the first.
static size_t written_size(std::string_view text) {
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

}  // namespace specdec
