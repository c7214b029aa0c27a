#include "core/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

bool is_integer(const JinjaValue& value) { return holds<bool>(value) || holds<int64_t>(value); }

bool equal_lists(const JinjaList& a, const JinjaList& b) {
  using Kind = JinjaList::Kind;
  if (std::max(a.kind, b.kind) > Kind::kTuple) {
    throw Error("comparing an iterator is not supported.");
  }
  return a.kind == b.kind &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), are_equal);
}

bool equal_dicts(const JinjaDict& a, const JinjaDict& b) {
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
           const JinjaValue* other = b.find(entry.first);
           return other != nullptr && are_equal(entry.second, *other);
         });
}

}  // namespace

const JinjaValue* JinjaDict::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  return found == entries.end() ? nullptr : &found->second;
}

JinjaValue jinja_text(std::string_view text) { return JinjaText(text); }

JinjaValue jinja_list(std::vector<JinjaValue> values, JinjaList::Kind kind) {
  return std::make_shared<const JinjaList>(
      JinjaList{.values = std::move(values), .kind = kind, .read = false});
}

std::string kind_of(const JinjaValue& value) {
  if (const auto* undefined = std::get_if<JinjaUndefined>(&value)) {
    return fmt::format("'{}', which is undefined", undefined->name);
  }
  static constexpr const char* kKinds[] = {"",       "none",      "a boolean", "an integer",
                                           "a text", "a list",    "a dict",    "a namespace",
                                           "a loop", "a function"};
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
  return !holds<JinjaUndefined>(value) && !holds<JinjaNone>(value);
}

bool are_equal(const JinjaValue& a, const JinjaValue& b) {
  if (is_integer(a) && is_integer(b)) {
    return integer_of(a) == integer_of(b);
  }
  if (a.index() != b.index()) {
    return false;
  }
  if (const auto* text = std::get_if<JinjaText>(&a)) {
    return text->bytes() == std::get<JinjaText>(b).bytes();
  }
  if (as_list(a) != nullptr) {
    return equal_lists(*as_list(a), *as_list(b));
  }
  if (as_dict(a) != nullptr) {
    return equal_dicts(*as_dict(a), *as_dict(b));
  }
  if (!holds<JinjaUndefined>(a) && !holds<JinjaNone>(a)) {
    throw Error(fmt::format("comparing {} is not supported.", kind_of(a)));
  }
  return true;
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
  if (holds<JinjaUndefined>(value) || holds<JinjaNone>(value)) {
    return JinjaText(holds<JinjaNone>(value) ? "None" : "");
  }
  throw Error(fmt::format("writing {} as text is not supported.", kind_of(value)));
}

std::vector<JinjaValue> items_of(const JinjaValue& value) {
  if (const auto* list = as_list(value)) {
    if (list->kind == JinjaList::Kind::kIterator && std::exchange(list->read, true)) {
      throw Error("reading an iterator twice is not supported.");
    }
    return list->values;
  }
  std::vector<JinjaValue> items;
  if (const auto* dict = as_dict(value)) {
    for (const auto& entry : dict->entries) {
      items.push_back(jinja_text(entry.first));
    }
    return items;
  }
  if (const auto* text = std::get_if<JinjaText>(&value)) {
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

int64_t length_of(const JinjaValue& value) {
  const auto* list = as_list(value);
  if (list != nullptr && list->kind == JinjaList::Kind::kIterator) {
    throw Error("an iterator has no length.");
  }
  if (const auto* text = std::get_if<JinjaText>(&value)) {
    return static_cast<int64_t>(text->characters().size()) - 1;
  }
  return static_cast<int64_t>(items_of(value).size());
}

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
