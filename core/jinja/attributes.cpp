// What values hold: attributes, methods, items, slices.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/jinja/builtins.h"
#include "core/jinja/name_list.h"

namespace specdec {
namespace {

using ListKind = JinjaList::Kind;

constexpr std::string_view kListMethods[] = {"append", "clear",   "copy",   "count",
                                             "extend", "index",   "insert", "pop",
                                             "remove", "reverse", "sort"};
constexpr std::string_view kDictMethods[] = {"clear",      "copy",   "fromkeys", "get",
                                             "items",      "keys",   "pop",      "popitem",
                                             "setdefault", "update", "values"};
constexpr std::string_view kIntegerAttributes[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "imag",
    "is_integer",       "numerator", "real",       "to_bytes"};

JinjaValue call_dict_method(const JinjaDict& dict, std::string_view name,
                            const JinjaArguments& arguments) {
  if (name == "get") {
    const auto given = bound_arguments(arguments, {"key", "default"}, name);
    const JinjaValue key = given[0] == nullptr ? JinjaValue(JinjaNone{}) : *given[0];
    const JinjaValue* found = dict.find(key, arguments.budget);
    const JinjaValue otherwise = given[1] == nullptr ? JinjaValue(JinjaNone{}) : *given[1];
    return found == nullptr ? otherwise : *found;
  }
  (void)bound_arguments(arguments, {}, name);
  std::vector<JinjaValue> all;
  arguments.budget.take(dict.entries.size(), 2 * JinjaBudget::kValue);
  for (const auto& [key, value] : dict.entries) {
    if (name == "items") {
      all.push_back(jinja_list({key, value}, ListKind::kTuple));
    } else {
      all.push_back(name == "keys" ? key : value);
    }
  }
  return jinja_list(std::move(all), ListKind::kView);
}

JinjaValue dict_method(const JinjaValue& value, std::string_view name) {
  if (name != "get" && name != "items" && name != "keys" && name != "values") {
    throw Error(fmt::format("the method {}() of dicts is not supported.", name));
  }
  return jinja_function(
      name,
      [value, method = std::string(name)](const JinjaArguments& arguments) {
        return call_dict_method(*as_dict(value), method, arguments);
      },
      value);
}

JinjaValue loop_attribute(const JinjaLoop& loop, std::string_view name) {
  const int64_t length = std::ssize(loop.items->values);
  const std::map<std::string_view, JinjaValue> known = {{"index", loop.index + 1},
                                                        {"index0", loop.index},
                                                        {"revindex", length - loop.index},
                                                        {"revindex0", length - loop.index - 1},
                                                        {"first", loop.index == 0},
                                                        {"last", loop.index + 1 == length},
                                                        {"length", length}};
  if (const auto found = known.find(name); found != known.end()) {
    return found->second;
  }
  if (name != "previtem" && name != "nextitem") {
    throw Error(fmt::format("loop.{} is not supported.", shortened(name)));
  }
  const int64_t at = loop.index + (name == "previtem" ? -1 : 1);
  return at < 0 || at >= length ? JinjaUndefined{std::string(name)}
                                : loop.items->values[static_cast<size_t>(at)];
}

/// What Python's getattr gives; nothing for no such attribute.
std::optional<JinjaValue> python_attribute(const JinjaValue& value, std::string_view name) {
  if (name.starts_with("__")) {
    throw Error(fmt::format("the attribute {} is not supported.", shortened(name)));
  }
  if (const auto* text = std::get_if<JinjaText>(&value); text != nullptr && is_text_method(name)) {
    return jinja_function(name,
                          [text = *text, method = std::string(name)](const JinjaArguments& given) {
                            return call_text_method(text, method, given);
                          });
  }
  if (as_dict(value) != nullptr && is_one_of(kDictMethods, name)) {
    return dict_method(value, name);
  }
  if (as_list(value) != nullptr && is_one_of(kListMethods, name)) {
    throw Error(fmt::format("the method {}() of lists is not supported.", name));
  }
  const bool unlisted = as_list(value) != nullptr && as_list(value)->kind > ListKind::kTuple;
  if (unlisted || (is_integer(value) && is_one_of(kIntegerAttributes, name))) {
    throw Error(fmt::format("the attribute {} of {} is not supported.", shortened(name),
                            unlisted ? "an iterator" : kind_of(value)));
  }
  if (const auto* space = std::get_if<std::shared_ptr<JinjaNamespace>>(&value)) {
    const auto found = (*space)->attributes.find(name);
    if (found != (*space)->attributes.end()) {
      return found->second;
    }
  }
  if (const auto* loop = std::get_if<std::shared_ptr<const JinjaLoop>>(&value)) {
    return loop_attribute(**loop, name);
  }
  if (holds<std::shared_ptr<JinjaFunction>>(value)) {
    throw Error(fmt::format("the attribute {} of a function is not supported.", shortened(name)));
  }
  return std::nullopt;
}

void require_defined(const JinjaValue& value, const std::string& wanted) {
  if (const auto* undefined = std::get_if<JinjaUndefined>(&value)) {
    throw Error(fmt::format("it reads {} of '{}', which is undefined.", shortened(wanted),
                            shortened(undefined->name)));
  }
}

int64_t sequence_length(const JinjaValue& value, JinjaBudget& budget) {
  const auto* list = as_list(value);
  if (holds<JinjaText>(value) || (list != nullptr && list->kind <= ListKind::kTuple)) {
    return length_of(value, budget);
  }
  throw Error(fmt::format("a part of {} is not supported.", kind_of(value)));
}

/// The values or characters at these places.
JinjaValue picked(const JinjaValue& value, const std::vector<size_t>& places, JinjaBudget& budget) {
  budget.take(places.size(), JinjaBudget::kValue);
  if (const auto* list = as_list(value)) {
    std::vector<JinjaValue> values;
    for (const size_t i : places) {
      values.push_back(list->values[i]);
    }
    return jinja_list(std::move(values), list->kind);
  }
  const JinjaText& text = text_of(value);
  budget.take(text.size(), JinjaBudget::kCharacter);
  const std::vector<size_t> begins = text.characters();
  JinjaText result;
  for (const size_t i : places) {
    result += text.part(begins[i], begins[i + 1]);
  }
  return result;
}

}  // namespace

JinjaValue attribute_of(const JinjaValue& value, std::string_view name, JinjaBudget& budget) {
  require_defined(value, std::string(name));
  if (auto attribute = python_attribute(value, name)) {
    return *attribute;
  }
  if (const auto* dict = as_dict(value)) {
    const JinjaValue* entry = dict->find(name, budget);
    return entry == nullptr ? JinjaValue(JinjaUndefined{std::string(name)}) : *entry;
  }
  return JinjaUndefined{std::string(name)};
}

JinjaValue item_of(const JinjaValue& value, const JinjaValue& item, JinjaBudget& budget) {
  require_defined(value, "an item");
  if (const auto* dict = as_dict(value)) {
    if (const JinjaValue* entry = dict->find(item, budget)) {
      return *entry;
    }
  }
  if (const auto* key = std::get_if<JinjaText>(&item)) {
    const auto attribute = python_attribute(value, key->bytes());
    return attribute ? *attribute : JinjaUndefined{shortened(key->bytes())};
  }
  const bool sequence = holds<JinjaText>(value) || as_list(value) != nullptr;
  if (!sequence || (!holds<int64_t>(item) && !holds<bool>(item))) {
    return JinjaUndefined{"an item"};
  }
  const int64_t length = sequence_length(value, budget);
  const int64_t wanted = integer_of(item);
  const int64_t i = wanted < 0 ? wanted + length : wanted;
  if (i < 0 || i >= length) {
    return JinjaUndefined{fmt::format("item {}", wanted)};
  }
  const JinjaValue one = picked(value, {static_cast<size_t>(i)}, budget);
  return as_list(one) != nullptr ? as_list(one)->values.front() : one;
}

JinjaValue slice_of(const JinjaValue& value, const JinjaValue& begin, const JinjaValue& end,
                    const JinjaValue& step, JinjaBudget& budget) {
  require_defined(value, "a part");
  const int64_t length = sequence_length(value, budget);
  const int64_t given_stride = holds<JinjaNone>(step) ? 1 : integer_of(step);
  if (given_stride == 0) {
    throw Error("a slice has the step 0.");
  }
  const int64_t stride = std::clamp(given_stride, -length - 1, length + 1);
  const int64_t lowest = stride > 0 ? 0 : -1;
  const auto bound = [&](const JinjaValue& given, int64_t otherwise) {
    if (holds<JinjaNone>(given)) {
      return otherwise;
    }
    const int64_t at = integer_of(given);
    return std::clamp(at < 0 ? at + length : at, lowest, length + lowest);
  };
  const int64_t first = bound(begin, stride > 0 ? 0 : length - 1);
  const int64_t last = bound(end, stride > 0 ? length : -1);
  std::vector<size_t> places;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) {
    places.push_back(static_cast<size_t>(i));
  }
  return picked(value, places, budget);
}

}  // namespace specdec
