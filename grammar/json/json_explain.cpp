#include "grammar/json/json_explain.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "grammar/json/json_partial_item.h"

namespace specdec {
namespace {

constexpr size_t kMaxNames = 12;  ///< listed one by one

std::string join(const std::vector<std::string>& parts, size_t more) {
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  return more == 0 ? text : text + fmt::format(" and {} more", more);
}

std::string any_number(uint64_t min, uint64_t max, const char* what) {
  if (max == kUnbounded) {
    return min == 0 ? fmt::format("any number of {}", what)
                    : fmt::format("{} or more {}", min, what);
  }
  return min == max ? fmt::format("{} {}", min, what) : fmt::format("{} to {} {}", min, max, what);
}

/// The rest of a string, which more JSON may follow.
std::string string_before_quote(std::string_view json) {
  size_t end = 0;
  while (end < json.size() && json[end] != '"') {
    end += json[end] == '\\' ? 2 : 1;
  }
  return fmt::format("\"{}\"", json.substr(0, end));
}

}  // namespace

std::string JsonAutomaton::Explain::names(ObjectStateId id) {
  const ObjectPlan& plan = self_.plans_.objects().plan(id);
  const ObjectChoices& choices = self_.plans_.objects().choices(id);
  std::vector<std::string> found;
  size_t more = 0;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    if (choices.names[i]) {
      const std::string name = to_json_string(self_.formulas_.name_text(plan.names[i].name));
      if (found.size() < kMaxNames) {
        found.push_back(name + (plan.names[i].required ? " (required)" : ""));
      } else {
        ++more;
      }
    }
  }
  if (std::find(choices.classes.begin(), choices.classes.end(), true) != choices.classes.end()) {
    found.emplace_back("names that the schema does not list");
  }
  return found.empty() ? "no more names" : "names: " + join(found, more);
}

bool JsonAutomaton::Explain::goes_on(std::string_view bytes) {
  StateId at = state_;
  while (at != kDead && self_.states_[at].pad != 0) {
    at = self_.next(at, (self_.states_[at].pad & kNewline) != 0 ? '\n' : ' ');
  }
  return std::ranges::any_of(
      bytes, [&](char byte) { return self_.next(at, static_cast<uint8_t>(byte)) != kDead; });
}

/// Kinds of values that may come. Of items that are told apart, only the kinds of which values are
/// left.
std::string JsonAutomaton::Explain::value(const Thread& thread) {
  const ValuePlan plan = self_.plans_.value(thread.a);  // a copy: plans grow
  const bool told_apart = self_.item_is_open(self_.states_[state_], thread);
  std::vector<std::string> parts;
  const auto add = [&](bool possible, const char* name, std::string_view begins) {
    if (possible && (!told_apart || goes_on(begins))) {
      parts.emplace_back(name);
    }
  };
  add(plan.can_be_null, "null", "n");
  add(plan.can_be_false, "false", "f");
  add(plan.can_be_true, "true", "t");
  add(!plan.numbers.empty(), "a number", "-0123456789");
  add(!plan.strings.empty(), "a string", "\"");
  add(!plan.arrays.empty(), "an array", "[");
  add(!plan.objects.empty(), "an object", "{");
  return "a value begins: " + join(parts, 0);
}

/// What may follow in a string or number of an item that only some values are left for.
std::string JsonAutomaton::Explain::excluded_values(const Thread& thread) {
  if (thread.kind == Kind::kNumber) {
    return fmt::format("inside a number; it may {}end here", goes_on(",]}\n") ? "" : "not ");
  }
  std::string text = "inside a string of an item that is compared with the others";
  const State state = self_.states_[state_];
  const std::string rest =
      string_before_quote(PartialItem(self_, state).completion(thread).value_or(""));
  text += rest == "\"\"" ? "" : ": characters to come, for example " + rest;
  return text + (goes_on("\"") ? "; it may end here" : "; it may not end here");
}

std::string JsonAutomaton::Explain::string(const StringState& state) {
  RegexStore& regexes = self_.formulas_.regexes();
  if (!state.decoder.idle()) {
    return "inside a string: the rest of a character or escape";
  }
  const bool may_end = state.min == 0 && regexes.matches_empty(state.language);
  std::string text = "inside a string: " + any_number(state.min, state.max, "characters to come");
  if (const auto rest = regexes.shortest(state.language); rest && !rest->empty()) {
    text += ", for example " + to_json_string(to_utf8(*rest));
  }
  return text + (may_end ? "; it may end here" : "; it may not end here");
}

std::string JsonAutomaton::Explain::thread(const Thread& thread) {
  const bool idle = thread.kind != Kind::kString || self_.strings_[thread.a].decoder.idle();
  if ((thread.kind == Kind::kString || thread.kind == Kind::kNumber) && idle &&
      self_.item_is_open(self_.states_[state_], thread)) {
    return excluded_values(thread);
  }
  switch (thread.kind) {
    case Kind::kValue:
      return value(thread);
    case Kind::kString:
      return string(self_.strings_[thread.a]);
    case Kind::kNumber:
      return fmt::format("inside a number; it may {}end here",
                         self_.numbers(thread.a).is_complete(thread.b) ? "" : "not ");
    case Kind::kLiteral:
      return "the rest of null, false or true";
    case Kind::kArrayOpen:
    case Kind::kArrayClose:
      return "the array's end";
    case Kind::kArrayNext:
      return fmt::format(
          "after an item: {}{}", self_.plans_.arrays().items(thread.a).empty() ? "" : "',' ",
          self_.plans_.arrays().may_end(thread.a) ? "']'" : "(too few items to end)");
    case Kind::kObjectOpen:
    case Kind::kObjectClose:
      return self_.plans_.objects().choices(thread.a).may_end ? "the object's end" : "";
    case Kind::kKeyStart:
      return names(thread.a);
    case Kind::kKey:
      return "inside a name; " + names(self_.keys_[thread.a].object);
    case Kind::kColon:
      return "':'";
    case Kind::kObjectNext:
      return fmt::format(
          "after a property: {}{}",
          self_.plans_.objects().choices(thread.a).may_end ? "'}' or more; " : "more must come; ",
          names(thread.a));
    case Kind::kDone:
      return "the text is complete";
  }
  return "";
}

}  // namespace specdec
