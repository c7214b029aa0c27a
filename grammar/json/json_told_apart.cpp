// Strings in items that have begun, with which the items may become values that make a difference.
#include <algorithm>
#include <span>

#include "grammar/json/json_open_item.h"

namespace specdec {
namespace {

/// The beginning of a JSON text as a value: what is open is closed, the last part of each list and
/// object. Ends in a string.
JsonValue close_begun(std::string_view text, bool is_name) {
  std::string closers;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"';) {
        i += text[i] == '\\' ? 2 : 1;
      }
    } else if (text[i] == '[' || text[i] == '{') {
      closers += text[i] == '[' ? ']' : '}';
    } else if (text[i] == ']' || text[i] == '}') {
      closers.pop_back();
    }
  }
  std::reverse(closers.begin(), closers.end());
  if (!is_name) {
    return parse_json(std::string(text) + '"' + closers, "item");
  }
  // A name that has begun may read like one before it: as long as the text, it is no other.
  JsonValue begun =
      parse_json(std::string(text) + std::string(text.size(), '-') + "\":null" + closers, "item");
  JsonValue* open = &begun;
  for (size_t i = closers.size() - 1; i > 0; --i) {
    open = open->items.empty() ? &open->members.back().value : &open->items.back();
  }
  std::string& name = open->members.back().name;
  name.resize(name.size() - text.size());
  return begun;
}

/// All but what is open of it in the form of ValueStore.
void make_canonical(JsonValue& begun) {
  for (size_t i = 0; i < begun.items.size(); ++i) {
    const bool open = i + 1 == begun.items.size();
    open ? make_canonical(begun.items[i])
         : void(begun.items[i] = canonical_value(std::move(begun.items[i])));
  }
  for (size_t i = 0; i < begun.members.size(); ++i) {
    JsonValue& value = begun.members[i].value;
    const bool open = i + 1 == begun.members.size();
    open ? make_canonical(value) : void(value = canonical_value(std::move(value)));
  }
}

bool same_value(const JsonValue& a, const JsonValue& b) {
  return a.type == b.type && a.text == b.text && std::ranges::equal(a.items, b.items, same_value) &&
         std::ranges::equal(a.members, b.members, [](const JsonMember& x, const JsonMember& y) {
           return x.name == y.name && same_value(x.value, y.value);
         });
}

void add_rest(const std::string& whole, const std::string& begun,
              std::vector<std::u32string>& rests) {
  if (whole.starts_with(begun)) {
    rests.push_back(to_code_points(std::string_view(whole).substr(begun.size())));
  }
}

}  // namespace

void JsonAutomaton::OpenItem::add_words(const Thread& thread, OpenString& string) {
  std::vector<std::pair<uint32_t, uint32_t>> open = {{thread.stack, depth_of(thread)}};
  for (size_t at = 0; at < open.size(); ++at) {  // grows meanwhile
    const auto [stack, depth] = open[at];
    if (depth < state_.text_depth) {
      continue;
    }
    const std::vector<Entry> entries = self_.stacks_[stack];
    for (const Entry& entry : entries) {
      if (entry.kind == Entry::Kind::kUniqueArray) {
        add_words(entry, thread.kind == Kind::kKey, string);
      }
      if (entry.kind != Entry::Kind::kEnd && depth > 0) {
        open.emplace_back(entry.stack, depth - 1);
      }
    }
  }
}

void JsonAutomaton::OpenItem::add_words(const Entry& entry, bool is_name, OpenString& string) {
  const std::vector<ValueId> values = plans_.arrays().told_apart(entry.state);
  if (values.empty()) {
    return;
  }
  JsonValue begun = close_begun(std::string_view(text()).substr(entry.text_start), is_name);
  make_canonical(begun);
  std::vector<std::u32string> rests;
  for (const ValueId id : values) {
    may_become(begun, plans_.arrays().store()[id], is_name, rests);
  }
  for (std::u32string& rest : rests) {
    string.words.push_back({std::move(rest), false});
  }
}

/// Adds what is to come of the open string, or name, when the value begins so.
bool JsonAutomaton::OpenItem::may_become(const JsonValue& begun, const JsonValue& value,
                                         bool is_name, std::vector<std::u32string>& rests) {
  if (begun.type != value.type) {
    return false;
  }
  if (!begun.items.empty()) {
    const size_t last = begun.items.size() - 1;
    if (value.items.size() <= last ||
        !std::equal(begun.items.begin(), begun.items.end() - 1, value.items.begin(), same_value)) {
      return false;
    }
    return may_become(begun.items[last], value.items[last], is_name, rests);
  }
  if (!begun.members.empty()) {
    const auto done = std::span(begun.members).first(begun.members.size() - 1);
    const JsonMember& open = begun.members.back();
    for (const JsonMember& member : done) {
      const JsonValue* other = value.find(member.name);
      if (other == nullptr || !same_value(member.value, *other)) {
        return false;
      }
    }
    if (!is_name || !open.value.is(JsonValue::Type::kNull)) {
      const JsonValue* other = value.find(open.name);
      return other != nullptr && may_become(open.value, *other, is_name, rests);
    }
    for (const JsonMember& member : value.members) {
      const bool there = std::ranges::any_of(
          done, [&](const JsonMember& other) { return other.name == member.name; });
      if (!there) {
        add_rest(member.name, open.name, rests);
      }
    }
    return true;
  }
  if (!begun.is(JsonValue::Type::kString)) {
    return false;
  }
  add_rest(value.text, begun.text, rests);
  return true;
}

}  // namespace specdec
