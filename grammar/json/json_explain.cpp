#include "grammar/json/json_explain.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

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

std::string types_of(const ValuePlan& plan) {
  std::vector<std::string> parts;
  const auto add = [&](bool possible, const char* name) {
    if (possible) {
      parts.emplace_back(name);
    }
  };
  add(plan.can_be_null, "null");
  add(plan.can_be_false, "false");
  add(plan.can_be_true, "true");
  add(!plan.numbers.empty(), "a number");
  add(!plan.strings.empty(), "a string");
  add(!plan.arrays.empty(), "an array");
  add(!plan.objects.empty(), "an object");
  return "a value begins: " + join(parts, 0);
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
  switch (thread.kind) {
    case Kind::kValue:
      return types_of(self_.plans_.value(thread.a));
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
