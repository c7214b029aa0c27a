#include "core/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/jinja/numbers.h"

namespace specdec {
namespace {

bool equal_lists(const JinjaList& a, const JinjaList& b, JinjaBudget& budget) {
  using Kind = JinjaList::Kind;
  if (std::max(a.kind, b.kind) > Kind::kTuple) {
    throw Error("comparing an iterator is not supported.");
  }
  return a.kind == b.kind &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                    [&](const JinjaValue& one, const JinjaValue& other) {
                      return are_equal(one, other, budget);
                    });
}

bool equal_dicts(const JinjaDict& a, const JinjaDict& b, JinjaBudget& budget) {
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), [&](const JinjaDict::Entry& entry) {
           const JinjaValue* other = b.find(entry.key, budget);
           return other != nullptr && are_equal(entry.value, *other, budget);
         });
}

/// 0 for what holds nothing. A namespace counts as such: the renderer takes it apart.
int64_t depth_of(const JinjaValue& value) {
  if (const auto* loop = std::get_if<std::shared_ptr<const JinjaLoop>>(&value)) {
    return 1 + (*loop)->items->depth;
  }
  if (const auto* function = std::get_if<std::shared_ptr<JinjaFunction>>(&value)) {
    return (*function)->depth;
  }
  return as_list(value) != nullptr   ? as_list(value)->depth
         : as_dict(value) != nullptr ? as_dict(value)->depth
                                     : 0;
}

int64_t depth_around(int64_t depth) {
  if (depth >= kMaxJinjaDepth) {
    throw Error(fmt::format("it makes a value that is nested more than {} deep.", kMaxJinjaDepth));
  }
  return depth + 1;
}

/// Keys are equal as in Python, where true is 1.
bool can_be_key(const JinjaValue& value) {
  return holds<JinjaText>(value) || holds<JinjaNone>(value) || is_integer(value);
}

}  // namespace

JinjaDict::Entry::Entry(JinjaValue entry_key, JinjaValue entry_value)
    : key(std::move(entry_key)), value(std::move(entry_value)) {
  if (!can_be_key(key)) {
    throw Error(fmt::format("a dict with the key {} is not supported.", kind_of(key)));
  }
}

const JinjaValue* JinjaDict::find(const JinjaValue& key, JinjaBudget& budget) const {
  if (const auto* text = std::get_if<JinjaText>(&key)) {
    return find(text->bytes(), budget);
  }
  budget.take(entries.size());
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
    return can_be_key(key) && !holds<JinjaText>(entry.key) && are_equal(entry.key, key, budget);
  });
  return found == entries.end() ? nullptr : &found->value;
}

const JinjaValue* JinjaDict::find(std::string_view key, JinjaBudget& budget) const {
  budget.take(entries.size());
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
    const auto* text = std::get_if<JinjaText>(&entry.key);
    const bool possible = text != nullptr && text->size() == key.size();
    budget.take(possible ? key.size() : 0);
    return possible && text->bytes() == key;
  });
  return found == entries.end() ? nullptr : &found->value;
}

JinjaValue jinja_text(std::string_view text) { return JinjaText(text); }

JinjaValue jinja_list(std::vector<JinjaValue> values, JinjaList::Kind kind) {
  int64_t depth = 0;
  for (const JinjaValue& value : values) {
    depth = std::max(depth, depth_of(value));
  }
  return std::make_shared<const JinjaList>(JinjaList{
      .values = std::move(values), .kind = kind, .read = false, .depth = depth_around(depth)});
}

JinjaValue jinja_dict(std::vector<JinjaDict::Entry> entries, JinjaBudget& budget) {
  JinjaDict dict;
  int64_t depth = 0;
  for (JinjaDict::Entry& entry : entries) {
    depth = std::max(depth, depth_of(entry.value));
    const JinjaValue* known = dict.find(entry.key, budget);
    if (known == nullptr) {
      dict.entries.push_back(std::move(entry));
    } else {
      const auto place = std::find_if(dict.entries.begin(), dict.entries.end(),
                                      [&](const auto& one) { return &one.value == known; });
      place->value = std::move(entry.value);
    }
  }
  dict.depth = depth_around(depth);
  return std::make_shared<const JinjaDict>(std::move(dict));
}

JinjaValue jinja_function(std::string_view name,
                          std::function<JinjaValue(const JinjaArguments& given)> call,
                          const JinjaValue& held) {
  return std::make_shared<JinjaFunction>(JinjaFunction{
      .name = std::string(name), .call = std::move(call), .depth = depth_around(depth_of(held))});
}

JinjaBoundArguments bound_arguments(const JinjaArguments& arguments,
                                    const std::vector<std::string_view>& names,
                                    std::string_view function) {
  std::vector<const JinjaValue*> given(std::max(names.size(), arguments.values.size()), nullptr);
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    given[i] = &arguments.values[i];
  }
  bool known = arguments.values.size() <= names.size();
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names.begin(), names.end(), name);
    known = known && place != names.end();
    if (known) {
      const JinjaValue*& slot = given[static_cast<size_t>(place - names.begin())];
      known = slot == nullptr;
      slot = &value;
    }
  }
  if (!known) {
    throw Error(fmt::format("{}() with these arguments is not supported.", shortened(function)));
  }
  return {arguments.budget, std::move(given)};
}

std::string kind_of(const JinjaValue& value) {
  if (const auto* undefined = std::get_if<JinjaUndefined>(&value)) {
    return fmt::format("'{}', which is undefined", shortened(undefined->name));
  }
  static constexpr const char* kKinds[] = {
      "",       "none",   "a boolean",   "an integer", "a float",   "a text",
      "a list", "a dict", "a namespace", "a loop",     "a function"};
  return kKinds[value.index()];
}

bool is_true(const JinjaValue& value) {
  if (const auto* list = as_list(value)) {
    return list->kind == JinjaList::Kind::kIterator || !list->values.empty();
  }
  if (const auto* dict = as_dict(value)) {
    return !dict->entries.empty();
  }
  if (const auto* text = std::get_if<JinjaText>(&value)) {
    return !text->empty();
  }
  if (is_integer(value)) {
    return integer_of(value) != 0;
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return *number != 0;
  }
  return !holds<JinjaUndefined>(value) && !holds<JinjaNone>(value);
}

bool are_equal(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget) {
  budget.take(1, JinjaBudget::kValue);
  if (is_integer(a) && is_integer(b)) {
    return integer_of(a) == integer_of(b);
  }
  if ((holds<double>(a) && is_integer(b)) || (is_integer(a) && holds<double>(b))) {
    throw Error("comparing a float with an integer is not supported.");
  }
  if (a.index() != b.index()) {
    return false;
  }
  if (const auto* text = std::get_if<JinjaText>(&a)) {
    budget.take(text->size());
    return text->bytes() == std::get<JinjaText>(b).bytes();
  }
  if (const auto* number = std::get_if<double>(&a)) {
    return *number == std::get<double>(b);
  }
  if (as_list(a) != nullptr) {
    return equal_lists(*as_list(a), *as_list(b), budget);
  }
  if (as_dict(a) != nullptr) {
    return equal_dicts(*as_dict(a), *as_dict(b), budget);
  }
  if (!holds<JinjaUndefined>(a) && !holds<JinjaNone>(a)) {
    throw Error(fmt::format("comparing {} is not supported.", kind_of(a)));
  }
  return true;
}

bool contains(const JinjaValue& whole, const JinjaValue& part, JinjaBudget& budget) {
  if (const auto* text = std::get_if<JinjaText>(&whole)) {
    budget.take(text->size() + text_of(part).size());
    return place_of(text_of(part).bytes(), text->bytes()) != std::string::npos;
  }
  const bool hashes = as_list(part) == nullptr && as_dict(part) == nullptr;
  if (const auto* dict = as_dict(whole); dict != nullptr && hashes) {
    return dict->find(part, budget) != nullptr;
  }
  if (as_list(whole) == nullptr && !holds<JinjaUndefined>(whole)) {
    throw Error(fmt::format("{} in {} is not possible.", kind_of(part), kind_of(whole)));
  }
  const std::vector<JinjaValue> items = items_of(whole, budget);
  return std::any_of(items.begin(), items.end(),
                     [&](const JinjaValue& one) { return are_equal(one, part, budget); });
}

int64_t ordered(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget) {
  if (holds<JinjaText>(a) && holds<JinjaText>(b)) {
    budget.take(std::min(text_of(a).size(), text_of(b).size()));
    return text_of(a).bytes().compare(text_of(b).bytes());
  }
  const int64_t left = integer_of(a);
  const int64_t right = integer_of(b);
  return left < right ? -1 : left > right ? 1 : 0;
}

JinjaText printed(const JinjaValue& value) {
  if (const auto* text = std::get_if<JinjaText>(&value)) {
    return *text;
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return JinjaText(*flag ? "True" : "False");
  }
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return JinjaText(std::to_string(*number));
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return JinjaText(printed_float(*number));
  }
  if (holds<JinjaUndefined>(value) || holds<JinjaNone>(value)) {
    return JinjaText(holds<JinjaNone>(value) ? "None" : "");
  }
  throw Error(fmt::format("writing {} as text is not supported.", kind_of(value)));
}

std::vector<JinjaValue> items_of(const JinjaValue& value, JinjaBudget& budget) {
  if (const auto* list = as_list(value)) {
    if (list->kind == JinjaList::Kind::kIterator && std::exchange(list->read, true)) {
      throw Error("reading an iterator twice is not supported.");
    }
    budget.take(list->values.size(), JinjaBudget::kValue);
    return list->values;
  }
  std::vector<JinjaValue> items;
  if (const auto* dict = as_dict(value)) {
    budget.take(dict->entries.size(), JinjaBudget::kValue);
    for (const JinjaDict::Entry& entry : dict->entries) {
      items.emplace_back(entry.key);
    }
    return items;
  }
  if (const auto* text = std::get_if<JinjaText>(&value)) {
    budget.take(text->size());
    budget.take(static_cast<size_t>(text->character_count()),
                JinjaBudget::kValue + JinjaBudget::kCharacter);
    const std::vector<size_t> begins = text->characters();
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      items.emplace_back(text->part(begins[i], begins[i + 1]));
    }
    return items;
  }
  if (!holds<JinjaUndefined>(value)) {
    throw Error(fmt::format("a loop over {} is not possible.", kind_of(value)));
  }
  return items;
}

int64_t length_of(const JinjaValue& value, JinjaBudget& budget) {
  const auto* list = as_list(value);
  if (list != nullptr && list->kind == JinjaList::Kind::kIterator) {
    throw Error("an iterator has no length.");
  }
  if (const auto* text = std::get_if<JinjaText>(&value)) {
    budget.take(text->size());
    return text->character_count();
  }
  if (list != nullptr) {
    return std::ssize(list->values);
  }
  if (as_dict(value) != nullptr) {
    return std::ssize(as_dict(value)->entries);
  }
  if (!holds<JinjaUndefined>(value)) {
    throw Error(fmt::format("the length of {} is asked for, but it has none.", kind_of(value)));
  }
  return 0;
}

bool is_integer(const JinjaValue& value) { return holds<bool>(value) || holds<int64_t>(value); }

int64_t integer_of(const JinjaValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    return *flag ? 1 : 0;
  }
  if (!holds<int64_t>(value)) {
    throw Error(fmt::format("an integer is needed, but it is {}.", kind_of(value)));
  }
  return std::get<int64_t>(value);
}

const JinjaText& text_of(const JinjaValue& value) {
  if (!holds<JinjaText>(value)) {
    throw Error(fmt::format("a text is needed, but it is {}.", kind_of(value)));
  }
  return std::get<JinjaText>(value);
}

}  // namespace specdec
