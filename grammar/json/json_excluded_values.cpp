#include "grammar/json/json_excluded_values.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kMaxKept = 100'000;

/// The end of the string whose quote is there, behind its last quote; npos when it is open.
size_t string_end(std::string_view text, size_t quote) {
  for (size_t i = quote + 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      return i + 1;
    }
    i += text[i] == '\\' ? 1 : 0;
  }
  return std::string_view::npos;
}

/// The beginning of a JSON text: its values that are complete, in the lists and objects that are
/// open, each of which is the last part of the one around it.
struct Begun {
  size_t size = 0;  ///< how much of the text they are
  std::string closers = {};
  JsonValue value = {};
};

Begun complete_parts(std::string_view text) {
  Begun found;
  std::string open;
  bool is_name = false;
  const auto mark = [&](size_t size) {
    found.size = size;
    found.closers = open;
  };
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      i = string_end(text, i);
      if (i == std::string_view::npos) {
        return found;
      }
      if (!is_name) {
        mark(i);
      }
      is_name = false;
      continue;
    }
    if (c == ',' && !open.empty()) {
      mark(i);  // a number may end here
      is_name = open.back() == '}';
    }
    ++i;
    if (c == '{' || c == '[') {
      open += c == '[' ? ']' : '}';
      is_name = c == '{';
      mark(i);
    } else if (c == '}' || c == ']') {
      open.pop_back();
      is_name = false;
      mark(i);
    }
  }
  return found;
}

/// All but what is open of it in the form of ValueStore.
void make_canonical(JsonValue& begun, size_t depth) {
  const auto visit = [&](JsonValue& part, bool last) {
    if (last && depth > 0) {
      make_canonical(part, depth - 1);
    } else {
      part = canonical_value(std::move(part));
    }
  };
  for (size_t i = 0; i < begun.items.size(); ++i) {
    visit(begun.items[i], i + 1 == begun.items.size());
  }
  for (size_t i = 0; i < begun.members.size(); ++i) {
    visit(begun.members[i].value, i + 1 == begun.members.size());
  }
}

/// What complete_parts finds in a text, with the complete parts as a value.
Begun read_begun(std::string_view text) {
  Begun found = complete_parts(text);
  if (!found.closers.empty()) {
    const std::string closers(found.closers.rbegin(), found.closers.rend());
    found.value = parse_json(std::string(text.substr(0, found.size)) + closers, "item");
    make_canonical(found.value, found.closers.size() - 1);
  }
  return found;
}

bool same_value(const JsonValue& a, const JsonValue& b) {
  return a.type == b.type && a.text == b.text && std::ranges::equal(a.items, b.items, same_value) &&
         std::ranges::equal(a.members, b.members, [](const JsonMember& x, const JsonMember& y) {
           return x.name == y.name && same_value(x.value, y.value);
         });
}

/// The part of the value that the innermost list or object becomes of what is begun, `depth` below
/// its outermost; nullptr when it does not become this value.
const JsonValue* innermost(const JsonValue& begun, const JsonValue& value, size_t depth) {
  if (begun.type != value.type || begun.items.size() > value.items.size()) {
    return nullptr;
  }
  const JsonValue* inner = &value;
  for (size_t i = 0; i < begun.items.size(); ++i) {
    if (i + 1 == begun.items.size() && depth > 0) {
      inner = innermost(begun.items[i], value.items[i], depth - 1);
    } else if (!same_value(begun.items[i], value.items[i])) {
      return nullptr;
    }
  }
  for (const JsonMember& member : begun.members) {
    const JsonValue* other = value.find(member.name);
    if (other == nullptr) {
      return nullptr;
    }
    if (&member == &begun.members.back() && depth > 0) {
      inner = innermost(member.value, *other, depth - 1);
    } else if (!same_value(member.value, *other)) {
      return nullptr;
    }
  }
  return inner;
}

/// The part of `value` that is innermost in what is begun; `value` itself where nothing is open.
const JsonValue* innermost(const Begun& begun, const JsonValue& value) {
  return begun.closers.empty() ? &value : innermost(begun.value, value, begun.closers.size() - 1);
}

/// The innermost list or object of what is begun.
const JsonValue& innermost(const Begun& begun) {
  const JsonValue* open = &begun.value;
  for (size_t i = 1; i < begun.closers.size(); ++i) {
    open = open->items.empty() ? &open->members.back().value : &open->items.back();
  }
  return *open;
}

/// What the string that comes next may be where the item becomes that value: the value of the
/// property of that name, else an item or a name.
void add_strings(const Begun& begun, const std::optional<std::string>& name, const JsonValue& value,
                 std::vector<std::string_view>& found) {
  const JsonValue* open = innermost(begun, value);
  if (open == nullptr) {
    return;
  }
  const JsonValue* next = open;
  if (!begun.closers.empty() && begun.closers.back() == '}') {
    next = name ? open->find(*name) : nullptr;
    for (size_t i = 0; i < open->members.size() && !name; ++i) {
      const std::string& other = open->members[i].name;
      if (innermost(begun).find(other) == nullptr) {
        found.push_back(other);
      }
    }
  } else if (!begun.closers.empty()) {
    const size_t at = innermost(begun).items.size();
    next = at < open->items.size() ? &open->items[at] : nullptr;
  }
  if (next != nullptr && next->is(JsonValue::Type::kString)) {
    found.push_back(next->text);
  }
}

}  // namespace

/// Place of the item's text up to that size.
JsonAutomaton::ExcludedValues::Place JsonAutomaton::ExcludedValues::place(const Item& item,
                                                                          size_t size) const {
  uint32_t text = item.recorded;
  for (size_t i = size; i < item.text.size(); ++i) {
    text = self_.texts_.parent(text);
  }
  return {item.array, text, size};
}

void JsonAutomaton::ExcludedValues::make_room(size_t more) {
  kept_ += more + 1;
  if (kept_ > kMaxKept) {
    left_.clear();
    strings_.clear();
    kept_ = more + 1;
  }
}

const std::vector<ValueId>& JsonAutomaton::ExcludedValues::left(const Item& item) {
  const Place here = place(item, complete_parts(item.text).size);
  if (const auto known = left_.find(here); known != left_.end()) {
    return known->second;
  }
  const Begun begun = read_begun(item.text);
  const ValueStore& store = self_.plans_.arrays().store();
  std::vector<ValueId> values = self_.plans_.arrays().excluded_values(item.array);
  std::erase_if(values, [&](ValueId id) { return innermost(begun, store[id]) == nullptr; });
  make_room(values.size());
  return left_[here] = std::move(values);
}

/// All strings and names of such values at the place where one begins.
const JsonAutomaton::ExcludedValues::Strings& JsonAutomaton::ExcludedValues::strings(
    const Item& item, size_t quote) {
  const Place here = place(item, quote + 1);
  if (const auto known = strings_.find(here); known != strings_.end()) {
    return known->second;
  }
  const Begun begun = read_begun(item.text.substr(0, quote));
  const std::string_view between = item.text.substr(begun.size, quote - begun.size);
  const size_t name_begin = between.find('"');
  std::optional<std::string> name;
  if (name_begin != std::string_view::npos) {
    const size_t name_end = string_end(between, name_begin);
    name = parse_json(between.substr(name_begin, name_end - name_begin), "name").text;
  }
  Strings found;
  for (const ValueId id : left(item)) {
    add_strings(begun, name, self_.plans_.arrays().store()[id], found);
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  make_room(found.size());
  return strings_[here] = std::move(found);
}

size_t JsonAutomaton::ExcludedValues::open_string(std::string_view text) {
  size_t i = text.find('"');
  for (size_t end = 0; (end = string_end(text, i)) != std::string_view::npos;) {
    i = text.find('"', end);
  }
  return i;
}

void JsonAutomaton::ExcludedValues::add_words(const Item& item,
                                              std::vector<OpenString::Word>& words) {
  const size_t quote = open_string(item.text);
  const std::string begun = parse_json(std::string(item.text.substr(quote)) + '"', "string").text;
  const Strings& all = strings(item, quote);
  for (auto at = std::ranges::lower_bound(all, begun); at != all.end() && at->starts_with(begun);
       ++at) {
    words.push_back({to_code_points(at->substr(begun.size())), false});
  }
}

}  // namespace specdec
