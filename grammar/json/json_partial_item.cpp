#include "grammar/json/json_partial_item.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/json/different_texts.h"
#include "grammar/json/json_excluded_values.h"

namespace specdec {
namespace {

constexpr uint64_t kFewWays = 2;

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
