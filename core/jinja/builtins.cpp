#include "core/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/jinja/numbers.h"

namespace specdec {
namespace {

using Bound = JinjaBoundArguments;
using ListKind = JinjaList::Kind;

struct Filter {
  std::vector<std::string_view> parameters;
  JinjaValue (*apply)(const JinjaValue& value, const Bound& given) = nullptr;
};

bool is_set(const JinjaValue* flag) { return flag != nullptr && is_true(*flag); }

JinjaValue default_filter(const JinjaValue& value, const Bound& given) {
  const bool also_false = is_set(given[1]);
  const bool missing = holds<JinjaUndefined>(value) || (also_false && !is_true(value));
  return !missing ? value : given[0] == nullptr ? jinja_text("") : *given[0];
}

JinjaValue join_filter(const JinjaValue& value, const Bound& given) {
  JinjaText result;
  bool first = true;
  for (const JinjaValue& one : items_of(value, given.budget)) {
    result += std::exchange(first, false) || given[0] == nullptr ? JinjaText() : printed(*given[0]);
    result += printed(one);
  }
  given.budget.take(result.size(), 2);
  return result;
}

JinjaValue end_of_list(const JinjaValue& value, bool first, JinjaBudget& budget) {
  if (as_list(value) != nullptr && as_list(value)->kind == ListKind::kIterator && !first) {
    throw Error("the last of an iterator is not supported.");
  }
  const std::vector<JinjaValue> items = items_of(value, budget);
  if (items.empty()) {
    return JinjaUndefined{first ? "the first of none" : "the last of none"};
  }
  return first ? items.front() : items.back();
}

constexpr char kStrip[] = "strip";
constexpr char kReplace[] = "replace";
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kCapitalize[] = "capitalize";

/// What the value's text has as a method.
template <const char* kMethod>
JinjaValue text_filter(const JinjaValue& value, const Bound& given) {
  JinjaArguments arguments{given.budget, {}, {}};
  for (const JinjaValue* one : given.values) {
    if (one != nullptr) {
      arguments.values.push_back(*one);
    }
  }
  return call_text_method(printed(value), kMethod, arguments);
}

JinjaValue length_filter(const JinjaValue& value, const Bound& given) {
  return length_of(value, given.budget);
}

JinjaValue items_filter(const JinjaValue& value, const Bound& given) {
  if (as_dict(value) == nullptr) {
    throw Error("the filter items needs a dict.");
  }
  const JinjaValue method = attribute_of(value, "items", given.budget);
  const auto& call = std::get<std::shared_ptr<JinjaFunction>>(method)->call;
  return jinja_list(items_of(call({given.budget, {}, {}}), given.budget), ListKind::kIterator);
}

/// The pairs of a dict, sorted by key or value, without case unless case_sensitive.
JinjaValue dictsort_filter(const JinjaValue& value, const Bound& given) {
  const std::string by = given[1] == nullptr ? "key" : text_of(*given[1]).bytes();
  if (as_dict(value) == nullptr || (by != "key" && by != "value")) {
    throw Error("the filter dictsort needs a dict, and by=\"key\" or by=\"value\".");
  }
  using Entry = std::pair<JinjaValue, JinjaDict::Entry>;
  const auto& all = as_dict(value)->entries;
  const bool without_case = !is_set(given[0]) && all.size() > 1;
  std::vector<Entry> entries;
  for (const JinjaDict::Entry& entry : all) {
    const JinjaValue& key = by == "key" ? entry.key : entry.value;
    const bool lower = without_case && holds<JinjaText>(key);
    entries.emplace_back(lower ? text_filter<kLower>(key, {given.budget, {}}) : key, entry);
  }
  given.budget.take(entries.size(), 4 * JinjaBudget::kValue);
  const bool reverse = is_set(given[2]);
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return (reverse ? ordered(b.first, a.first, given.budget)
                    : ordered(a.first, b.first, given.budget)) < 0;
  });
  std::vector<JinjaValue> pairs;
  for (const auto& [key, entry] : entries) {
    pairs.push_back(jinja_list({entry.key, entry.value}, ListKind::kTuple));
  }
  return jinja_list(std::move(pairs));
}

JinjaValue int_filter(const JinjaValue& value, const Bound& given) {
  if (given[1] != nullptr && (!is_integer(*given[1]) || integer_of(*given[1]) != 10)) {
    throw Error("the filter int with a base other than 10 is not supported.");
  }
  if (is_integer(value)) {
    return integer_of(value);
  }
  if (holds<JinjaUndefined>(value) || holds<double>(value)) {
    throw Error(fmt::format("the filter int is given {}.", kind_of(value)));
  }
  const JinjaValue otherwise = given[0] == nullptr ? JinjaValue(int64_t{0}) : *given[0];
  const auto number =
      holds<JinjaText>(value)
          ? parsed_int(text_of(text_filter<kStrip>(value, {given.budget, {}})).bytes())
          : std::nullopt;
  return number ? JinjaValue(*number) : otherwise;
}

JinjaValue json_filter(const JinjaValue& value, const Bound& given) {
  if (is_set(given[0])) {
    throw Error("the filter tojson with ensure_ascii is not supported.");
  }
  return json_of(value, given.budget);
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> all = {
      {"default", {{"default_value", "boolean"}, default_filter}},
      {"d", {{"default_value", "boolean"}, default_filter}},
      {"length", {{}, length_filter}},
      {"count", {{}, length_filter}},
      {"join", {{"d"}, join_filter}},
      {"first",
       {{},
        [](const JinjaValue& value, const Bound& given) {
          return end_of_list(value, true, given.budget);
        }}},
      {"last",
       {{},
        [](const JinjaValue& value, const Bound& given) {
          return end_of_list(value, false, given.budget);
        }}},
      {"list",
       {{},
        [](const JinjaValue& value, const Bound& given) {
          return jinja_list(items_of(value, given.budget));
        }}},
      {"items", {{}, items_filter}},
      {"dictsort", {{"case_sensitive", "by", "reverse"}, dictsort_filter}},
      {"int", {{"default", "base"}, int_filter}},
      {"string",
       {{}, [](const JinjaValue& value, const Bound&) -> JinjaValue { return printed(value); }}},
      {"tojson", {{"ensure_ascii"}, json_filter}},
      {"trim", {{"chars"}, text_filter<kStrip>}},
      {"replace", {{"old", "new", "count"}, text_filter<kReplace>}},
      {"upper", {{}, text_filter<kUpper>}},
      {"lower", {{}, text_filter<kLower>}},
      {"capitalize", {{}, text_filter<kCapitalize>}}};
  return all;
}

/// An item's attribute; not a namespace's, which may change before jinja2 would read it.
JinjaValue attribute_of_item(const JinjaValue& item, const JinjaValue& name, JinjaBudget& budget) {
  if (holds<std::shared_ptr<JinjaNamespace>>(item)) {
    throw Error("a filter that reads the attributes of namespaces is not supported.");
  }
  return item_of(item, name, budget);
}

/// selectattr, rejectattr: of the items those whose attribute does, or does not, pass a test; none
/// of what counts as false.
JinjaValue selected(std::string_view name, const JinjaValue& value,
                    const JinjaArguments& arguments) {
  if (!is_true(value)) {
    return jinja_list({}, ListKind::kIterator);
  }
  const std::vector<JinjaValue>& given = arguments.values;
  if (given.empty() || !arguments.named.empty() ||
      text_of(given[0]).bytes().find('.') != std::string::npos) {
    throw Error(fmt::format("the filter {} with these arguments is not supported.", name));
  }
  JinjaArguments rest{arguments.budget, {}, {}};
  rest.values.assign(given.begin() + std::min<int64_t>(2, std::ssize(given)), given.end());
  std::vector<JinjaValue> kept;
  for (const JinjaValue& one : items_of(value, arguments.budget)) {
    const JinjaValue attribute = attribute_of_item(one, given[0], arguments.budget);
    const bool passes = given.size() > 1 ? apply_test(text_of(given[1]).bytes(), attribute, rest)
                                         : is_true(attribute);
    if (passes == (name == "selectattr")) {
      kept.push_back(one);
    }
  }
  return jinja_list(std::move(kept), ListKind::kIterator);
}

/// map(attribute="name"); nothing of what counts as false.
JinjaValue mapped(const JinjaValue& value, const JinjaArguments& arguments) {
  if (!is_true(value)) {
    return jinja_list({}, ListKind::kIterator);
  }
  if (!arguments.values.empty() || arguments.named.size() != 1 ||
      arguments.named[0].first != "attribute" ||
      text_of(arguments.named[0].second).bytes().find('.') != std::string::npos) {
    throw Error("the filter map with these arguments is not supported.");
  }
  std::vector<JinjaValue> all;
  for (const JinjaValue& one : items_of(value, arguments.budget)) {
    all.push_back(attribute_of_item(one, arguments.named[0].second, arguments.budget));
  }
  return jinja_list(std::move(all), ListKind::kIterator);
}

void append_json_text(const JinjaText& text, JinjaText& out, JinjaBudget& budget) {
  budget.take(text.size(), 12);  // a byte may become six
  constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  out += JinjaText("\"");
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    const size_t known = kEscaped.find(c);
    if (known != std::string_view::npos) {
      out.append_for(fmt::format("\\{}", kLetters[known]), text, i);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append_for(fmt::format("\\u{:04x}", static_cast<int>(c)), text, i);
    } else {
      out.append_for({&c, 1}, text, i);
    }
  }
  out += JinjaText("\"");
}

void append_json(const JinjaValue& value, JinjaText& out, JinjaBudget& budget);

/// Keys are texts in JSON: 1 becomes "1".
void append_json_key(const JinjaValue& key, JinjaText& out, JinjaBudget& budget) {
  out += JinjaText(holds<JinjaText>(key) ? "" : "\"");
  append_json(key, out, budget);
  out += JinjaText(holds<JinjaText>(key) ? "" : "\"");
}

void append_json(const JinjaValue& value, JinjaText& out, JinjaBudget& budget) {
  budget.take(1, JinjaBudget::kValue);
  const auto* list = as_list(value);
  if (const auto* text = std::get_if<JinjaText>(&value)) {
    append_json_text(*text, out, budget);
  } else if (holds<bool>(value) || holds<JinjaNone>(value)) {
    out += JinjaText(holds<JinjaNone>(value) ? "null" : std::get<bool>(value) ? "true" : "false");
  } else if (holds<int64_t>(value) || holds<double>(value)) {
    out += printed(value);
  } else if (list != nullptr && list->kind <= ListKind::kTuple) {
    out += JinjaText("[");
    for (size_t i = 0; i < list->values.size(); ++i) {
      out += JinjaText(i == 0 ? "" : ", ");
      append_json(list->values[i], out, budget);
    }
    out += JinjaText("]");
  } else if (const auto* dict = as_dict(value)) {
    out += JinjaText("{");
    for (size_t i = 0; i < dict->entries.size(); ++i) {
      out += JinjaText(i == 0 ? "" : ", ");
      append_json_key(dict->entries[i].key, out, budget);
      out += JinjaText(": ");
      append_json(dict->entries[i].value, out, budget);
    }
    out += JinjaText("}");
  } else {
    throw Error(fmt::format("{} has no JSON.", kind_of(value)));
  }
}

using Test = bool (*)(const JinjaValue& value, const Bound& given);

bool is_exactly(const JinjaValue& value, bool wanted) {
  return holds<bool>(value) && std::get<bool>(value) == wanted;
}

bool is_iterable(const JinjaValue& value) {
  return holds<JinjaUndefined>(value) || holds<JinjaText>(value) || as_list(value) != nullptr ||
         as_dict(value) != nullptr;
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> all = {
      {"defined", [](const JinjaValue& v, const Bound&) { return !holds<JinjaUndefined>(v); }},
      {"undefined", [](const JinjaValue& v, const Bound&) { return holds<JinjaUndefined>(v); }},
      {"none", [](const JinjaValue& v, const Bound&) { return holds<JinjaNone>(v); }},
      {"string", [](const JinjaValue& v, const Bound&) { return holds<JinjaText>(v); }},
      {"mapping", [](const JinjaValue& v, const Bound&) { return as_dict(v) != nullptr; }},
      {"boolean", [](const JinjaValue& v, const Bound&) { return holds<bool>(v); }},
      {"true", [](const JinjaValue& v, const Bound&) { return is_exactly(v, true); }},
      {"false", [](const JinjaValue& v, const Bound&) { return is_exactly(v, false); }},
      {"integer", [](const JinjaValue& v, const Bound&) { return holds<int64_t>(v); }},
      {"number",
       [](const JinjaValue& v, const Bound&) { return is_integer(v) || holds<double>(v); }},
      {"float", [](const JinjaValue& v, const Bound&) { return holds<double>(v); }},
      {"iterable", [](const JinjaValue& v, const Bound&) { return is_iterable(v); }},
      {"sequence",
       [](const JinjaValue& v, const Bound&) {
         if (as_list(v) != nullptr && as_list(v)->kind > ListKind::kTuple) {
           throw Error("the test sequence of an iterator is not supported.");
         }
         return is_iterable(v);
       }},
      {"odd", [](const JinjaValue& v, const Bound&) { return integer_of(v) % 2 != 0; }},
      {"even", [](const JinjaValue& v, const Bound&) { return integer_of(v) % 2 == 0; }}};
  return all;
}

}  // namespace

JinjaValue apply_filter(std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments) {
  if (name == "selectattr" || name == "rejectattr") {
    return selected(name, value, arguments);
  }
  if (name == "map") {
    return mapped(value, arguments);
  }
  const auto filter = filters().find(name);
  if (filter == filters().end()) {
    throw Error(fmt::format("the filter {} is not supported.", shortened(name)));
  }
  return filter->second.apply(value, bound_arguments(arguments, filter->second.parameters, name));
}

bool apply_test(std::string_view name, const JinjaValue& value, const JinjaArguments& arguments) {
  const bool equal = name == "equalto" || name == "eq" || name == "==";
  if (equal || name == "ne" || name == "!=") {
    const auto given = bound_arguments(arguments, {"other"}, name);
    if (given[0] == nullptr) {
      throw Error(fmt::format("the test {} needs a value.", name));
    }
    return are_equal(value, *given[0], given.budget) == equal;
  }
  if (name == "in") {
    const auto given = bound_arguments(arguments, {"seq"}, name);
    if (given[0] == nullptr) {
      throw Error("the test in needs a value.");
    }
    return contains(*given[0], value, given.budget);
  }
  const auto test = tests().find(name);
  if (test == tests().end()) {
    throw Error(fmt::format("the test {} is not supported.", shortened(name)));
  }
  return test->second(value, bound_arguments(arguments, {}, name));
}

JinjaText json_of(const JinjaValue& value, JinjaBudget& budget) {
  JinjaText out;
  append_json(value, out, budget);
  return out;
}

}  // namespace specdec
