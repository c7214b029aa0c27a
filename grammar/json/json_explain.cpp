// What a place in a JSON text allows, said in words.
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "grammar/json/json_automaton.h"

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

std::string JsonAutomaton::explain_names(ObjectStateId id) {
  const ObjectPlan& plan = plans_.objects().plan(id);
  const ObjectChoices& choices = plans_.objects().choices(id);
  std::vector<std::string> names;
  size_t more = 0;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    if (choices.names[i]) {
      const std::string name = to_json_string(formulas_.name_text(plan.names[i].name));
      if (names.size() < kMaxNames) {
        names.push_back(name + (plan.names[i].required ? " (required)" : ""));
      } else {
        ++more;
      }
    }
  }
  if (std::find(choices.classes.begin(), choices.classes.end(), true) != choices.classes.end()) {
    names.emplace_back("names that the schema does not list");
  }
  return names.empty() ? "no more names" : "names: " + join(names, more);
}

std::string JsonAutomaton::explain_string(const StringState& state) {
  RegexStore& regexes = formulas_.regexes();
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

std::string JsonAutomaton::explain_thread(const Thread& thread) {
  switch (thread.kind) {
    case Kind::kValue:
      return types_of(plans_.value(thread.a));
    case Kind::kString:
      return explain_string(strings_[thread.a]);
    case Kind::kNumber:
      return fmt::format("inside a number; it may {}end here",
                         numbers(thread.a).is_complete(thread.b) ? "" : "not ");
    case Kind::kLiteral:
      return "the rest of null, false or true";
    case Kind::kArrayOpen:
    case Kind::kArrayClose:
      return "the array's end";
    case Kind::kArrayNext:
      return fmt::format("after an item: {}{}",
                         plans_.arrays().items(thread.a).empty() ? "" : "',' ",
                         plans_.arrays().may_end(thread.a) ? "']'" : "(too few items to end)");
    case Kind::kObjectOpen:
    case Kind::kObjectClose:
      return plans_.objects().choices(thread.a).may_end ? "the object's end" : "";
    case Kind::kKeyStart:
      return explain_names(thread.a);
    case Kind::kKey:
      return "inside a name; " + explain_names(keys_[thread.a].object);
    case Kind::kColon:
      return "':'";
    case Kind::kObjectNext:
      return fmt::format(
          "after a property: {}{}",
          plans_.objects().choices(thread.a).may_end ? "'}' or more; " : "more must come; ",
          explain_names(thread.a));
    case Kind::kDone:
      return "the text is complete";
  }
  return "";
}

std::string JsonAutomaton::explain(StateId state) {
  if (state == kDead) {
    return "nothing: no text of the grammar begins so\n";
  }
  const std::span<const Thread> threads = states_[state].threads;
  std::vector<std::string> lines;
  for (const Thread& thread : threads) {
    std::string line = explain_thread(thread);
    if (!line.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(std::move(line));
    }
  }
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace specdec
