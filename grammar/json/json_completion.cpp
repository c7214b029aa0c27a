#include "grammar/json/json_completion.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

constexpr uint64_t kMaxParts = 2'000;  ///< items and properties that a list or object still needs
constexpr uint64_t kMaxString = 100'000;  ///< characters

std::optional<std::string> shorter(std::optional<std::string> a, std::optional<std::string> b) {
  return !a || (b && b->size() < a->size()) ? b : a;
}

/// A string as JSON writes it, without its first quote.
std::string string_rest(std::u32string_view text) {
  return to_json_string(to_utf8(text)).substr(1);
}

uint64_t missing(uint64_t wanted, uint64_t there) { return wanted > there ? wanted - there : 0; }

}  // namespace

bool JsonAutomaton::Completion::is_full() const {
  const size_t most =
      std::max({values_.size(), arrays_.size(), properties_.size(), nearer_.size()});
  return most > kMaxKnown / 2;
}

std::optional<JsonAutomaton::Completion::Rest> JsonAutomaton::Completion::rest(
    const Thread& thread) {
  const std::optional<std::string> outer = after(thread.stack);
  std::optional<std::string> inner = outer ? this->inner(thread) : std::nullopt;
  return inner ? std::optional(Rest{*std::move(inner), *outer}) : std::nullopt;
}

std::optional<std::string> JsonAutomaton::Completion::inner(const Thread& thread) {
  switch (thread.kind) {
    case Kind::kValue:
      return value(thread.a);
    case Kind::kString: {
      const StringState& state = self_.strings_[thread.a];
      return string({state.language, state.min, state.max});
    }
    case Kind::kNumber:
      return self_.numbers(thread.a).find_completion(thread.b);
    case Kind::kLiteral:
      return std::string(kLiterals[thread.a].substr(thread.b));
    case Kind::kArrayOpen:
    case Kind::kArrayClose:
      return "]";
    case Kind::kArrayNext:
      return by_depth([&](int depth) { return array(thread.a, depth, true); });
    case Kind::kObjectOpen:
      return plans_.objects().choices(thread.a).may_end ? std::optional("}") : std::nullopt;
    case Kind::kObjectClose:
      return "}";
    case Kind::kObjectNext:
      return by_depth([&](int depth) { return object(thread.a, depth); });
    case Kind::kKeyStart:
      return by_depth([&](int depth) { return property(thread.a, depth, false); });
    case Kind::kKey:
      return by_depth([&](int depth) { return name(self_.keys_[thread.a], depth, false); });
    case Kind::kColon:
      return by_depth(
          [&](int depth) { return choice(self_.choices_[thread.a], ":", depth, kUnbounded); });
    case Kind::kDone:
      return "";
  }
  return std::nullopt;
}

std::optional<std::string> JsonAutomaton::Completion::after(uint32_t stack) {
  if (const auto known = stacks_.find(stack); known != stacks_.end()) {
    return known->second;
  }
  std::optional<std::string> best;
  const std::vector<Entry> entries = self_.stacks_[stack];
  for (const Entry& entry : entries) {
    if (entry.kind == Entry::Kind::kEnd) {
      best = shorter(std::move(best), "");
      continue;
    }
    const bool is_object = entry.kind == Entry::Kind::kObject;
    const auto own = by_depth([&](int depth) {
      return is_object ? object(entry.state, depth) : array(entry.state, depth, true);
    });
    const auto others = own ? after(entry.stack) : std::nullopt;
    best = shorter(std::move(best), others ? std::optional(*own + *others) : std::nullopt);
  }
  return stacks_[stack] = best;
}

std::optional<std::string> JsonAutomaton::Completion::value(FormulaId goal) {
  return by_depth([&](int depth) { return value(goal, depth); });
}

std::optional<std::string> JsonAutomaton::Completion::value(FormulaId goal, int depth) {
  return remember(values_, goal, depth, [&] { return make_value(plans_.value(goal), depth); });
}

std::optional<std::string> JsonAutomaton::Completion::make_value(const ValuePlan plan,
                                                                 int depth) {  // a copy: plans grow
  std::optional<std::string> best;
  for (const auto& [possible, text] : {std::pair(plan.can_be_null, "null"),
                                       {plan.can_be_true, "true"},
                                       {plan.can_be_false, "false"}}) {
    best = shorter(std::move(best), possible ? std::optional(text) : std::nullopt);
  }
  for (const uint32_t id : plan.numbers) {
    best = shorter(std::move(best), self_.numbers(id).find_completion(NumberAutomaton::kStart));
  }
  for (const StringPlan& text : plan.strings) {
    const auto rest = string(text);
    best = shorter(std::move(best), rest ? std::optional('"' + *rest) : std::nullopt);
  }
  for (const ArrayStateId id : plan.arrays) {
    const auto rest = array(id, depth, false);
    best = shorter(std::move(best), rest ? std::optional('[' + *rest) : std::nullopt);
  }
  for (const ObjectStateId id : plan.objects) {
    const auto rest = plans_.objects().choices(id).may_end ? std::optional<std::string>("}")
                                                           : property(id, depth, true);
    best = shorter(std::move(best), rest ? std::optional('{' + *rest) : std::nullopt);
  }
  return best;
}

std::optional<std::string> JsonAutomaton::Completion::string(const StringPlan& plan) {
  RegexStore& regexes = self_.formulas_.regexes();
  if (plan.min > kMaxString) {
    return std::nullopt;
  }
  RegexId language = plan.language;
  if (plan.min > 0) {
    const RegexId any = regexes.one_of(CodePoints::all());
    language = regexes.all_of(language, regexes.repeat(any, plan.min, plan.min));
  }
  const auto text = shortest(language);
  return text ? std::optional(string_rest(*text)) : std::nullopt;
}

std::array<RegexId, 3> JsonAutomaton::Completion::by_legibility(RegexId language) {
  RegexStore& regexes = self_.formulas_.regexes();
  const auto made_of = [&](const std::vector<CodePoints::Range>& ranges) {
    const RegexId letter = regexes.one_of(CodePoints(ranges));
    return regexes.all_of(language, regexes.repeat(letter, 0, std::nullopt));
  };
  return {made_of({{'0', '9'}, {'a', 'z'}}), made_of({{' ', '!'}, {'#', '['}, {']', '~'}}),
          language};
}

std::optional<std::u32string> JsonAutomaton::Completion::shortest(RegexId language) {
  for (const RegexId some : by_legibility(language)) {
    if (auto text = self_.formulas_.regexes().shortest(some)) {
      return text;
    }
  }
  return std::nullopt;
}

std::optional<std::u32string> JsonAutomaton::Completion::fresh_word(const KeyState& key,
                                                                    RegexId language) {
  for (const RegexId some : by_legibility(language)) {
    if (auto word = self_.fresh_word(key, some)) {
      return word;
    }
  }
  return std::nullopt;
}

std::optional<std::string> JsonAutomaton::Completion::array(ArrayStateId id, int depth, bool next) {
  if (plans_.arrays().may_end(id)) {
    return "]";
  }
  const auto items = depth == 0
                         ? std::nullopt
                         : remember(arrays_, id, depth, [&] { return make_items(id, depth); });
  return items ? std::optional((next ? "," : "") + *items) : std::nullopt;
}

uint64_t JsonAutomaton::Completion::array_left(ArrayStateId id) const {
  const ArrayState& state = plans_.arrays()[id];
  const ArrayPlan& plan = plans_.arrays().plan(id);
  uint64_t items = missing(plan.min, state.count);
  for (size_t i = 0; i < plan.contains.size(); ++i) {
    items = std::max(items, missing(plan.contains[i].min, state.contained[i]));
  }
  return items;
}

std::optional<std::string> JsonAutomaton::Completion::make_items(ArrayStateId id, int depth) {
  const uint64_t most = array_left(id);
  if (most > kMaxParts) {
    return std::nullopt;
  }
  std::vector<Choice> choices = plans_.arrays().items(id);
  std::stable_sort(choices.begin(), choices.end(), [&](const Choice& a, const Choice& b) {
    return array_left(a.next) < array_left(b.next);
  });
  for (const Choice& choice : choices) {
    const bool nearer = array_left(choice.next) < most ||
                        plans_.arrays()[choice.next].count > plans_.arrays()[id].count;
    for (const std::string& item : nearer ? items(choice, depth - 1) : std::vector<std::string>()) {
      const ArrayStateId after =
          plans_.arrays().tells_values(choice.next)
              ? plans_.arrays().with_item(choice.next,
                                          plans_.arrays().store().add(parse_json(item, "item")))
              : choice.next;
      if (const auto rest = array(after, depth, true)) {
        return item + *rest;
      }
    }
  }
  return std::nullopt;
}

/// Values of an item: the simplest, or several where the array does not take all.
std::vector<std::string> JsonAutomaton::Completion::items(const Choice& choice, int depth) {
  ArrayStates& arrays = plans_.arrays();
  if (!arrays.tells_values(choice.next)) {
    const auto item = value(choice.goal, depth);
    return item ? std::vector<std::string>{*item} : std::vector<std::string>();
  }
  std::vector<std::string> texts;
  const ValueList values =
      plans_.lists().of(choice.goal, arrays.count_excluded_values(choice.next) + 1);
  for (const ValueEntry& entry : values.entries) {
    if (arrays.takes(choice.next, entry.id)) {
      texts.push_back(entry.text);
      break;
    }
  }
  return texts;
}

std::optional<std::string> JsonAutomaton::Completion::object(ObjectStateId id, int depth) {
  if (plans_.objects().choices(id).may_end) {
    return "}";
  }
  const auto more = property(id, depth, true);
  return more ? std::optional(',' + *more) : std::nullopt;
}

uint64_t JsonAutomaton::Completion::object_left(ObjectStateId id) const {
  const ObjectState& state = plans_.objects()[id];
  const ObjectPlan& plan = plans_.objects().plan(id);
  uint64_t required = 0;
  for (size_t i = 0; i < plan.names.size(); ++i) {
    required += plan.names[i].required && !state.has_seen(i) ? 1 : 0;
  }
  return required + static_cast<uint64_t>(__builtin_popcountll(state.pending)) +
         ObjectClauses::missing(plan, state) + missing(plan.min, state.count);
}

std::optional<std::string> JsonAutomaton::Completion::property(ObjectStateId id, int depth,
                                                               bool nearer) {
  if (depth == 0) {
    return std::nullopt;
  }
  return remember(nearer ? nearer_ : properties_, id, depth, [&] {
    KeyState key;
    key.object = id;
    key.last = static_cast<uint32_t>(plans_.objects().plan(id).names.size());
    const ObjectChoices& choices = plans_.objects().choices(id);
    const std::vector<PropertyPlan>& classes = plans_.objects().plan(id).classes;
    for (size_t i = 0; i < classes.size(); ++i) {
      key.classes.push_back(choices.classes[i] ? classes[i].language : RegexStore::kNothing);
    }
    const auto text = name(key, depth, nearer);
    return text ? std::optional('"' + *text) : std::nullopt;
  });
}

bool JsonAutomaton::Completion::can_make_required(ObjectStateId id, int depth) {
  const std::vector<PropertyPlan>& names = plans_.objects().plan(id).names;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool missing = names[i].required && !plans_.objects()[id].has_seen(i);
    if (missing && !value(names[i].goal, depth - 1)) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> JsonAutomaton::Completion::name(const KeyState& key, int depth,
                                                           bool nearer) {
  const uint64_t left = object_left(key.object);
  if (depth == 0 || left > kMaxParts || !can_make_required(key.object, depth)) {
    return std::nullopt;
  }
  const uint64_t most = nearer ? left : kUnbounded;
  const ObjectPlan& plan = plans_.objects().plan(key.object);
  for (uint32_t i = key.first; i < key.last; ++i) {
    if (plans_.objects().choices(key.object).names[i]) {
      const std::u32string& text = self_.formulas_.name_points(plan.names[i].name);
      const std::string rest = string_rest(std::u32string_view(text).substr(key.length)) + ':';
      if (auto found = choice(plans_.objects().property(key.object, i), rest, depth, most)) {
        return found;
      }
    }
  }
  for (uint32_t i = 0; i < key.classes.size(); ++i) {
    const auto word = fresh_word(key, key.classes[i]);
    if (word) {
      uint32_t text = key.text;
      for (const char32_t c : *word) {
        text = self_.key_texts_.add(text, c);
      }
      if (auto found = choice(plans_.objects().other_property(key.object, i, text),
                              string_rest(*word) + ':', depth, most)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> JsonAutomaton::Completion::choice(const std::vector<Choice>& choices,
                                                             const std::string& before, int depth,
                                                             uint64_t most) {
  const std::vector<Choice> all(choices.begin(), choices.end());  // the plans' own may move
  for (const Choice& choice : all) {
    if (depth == 0 || object_left(choice.next) >= most) {
      continue;
    }
    const auto text = value(choice.goal, depth - 1);
    const auto rest = text ? object(choice.next, depth) : std::nullopt;
    if (rest) {
      return before + *text + *rest;
    }
  }
  return std::nullopt;
}

}  // namespace specdec
