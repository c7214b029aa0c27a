#include "grammar/json/value_lists.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/error.h"
#include "grammar/json/collected_texts.h"
#include "grammar/json/json_plans.h"

namespace specdec {
namespace {

constexpr int kMaxListedDepth = 1'000;  ///< of values in each other, as parse_json reads them
constexpr int kFirstListedDepth = 4;
// Bounds of the stack where questions for values are asked while others are answered.
constexpr int kMaxQuestions = 50;
constexpr int kMaxLists = 2 * kMaxListedDepth;

/// A depth a little deeper: values that nest deeply may be long, each with those before in it.
int deeper(int depth) { return std::min(depth + std::max(1, depth / 8), kMaxListedDepth); }

std::string comma(const std::string& begun, bool next) { return next ? begun + "," : begun; }

}  // namespace

class ValueLists::Remembering {
 public:
  explicit Remembering(Memory& memory) : memory_(memory) { std::swap(memory_, outer_); }
  ~Remembering() { std::swap(memory_, outer_); }
  Remembering(const Remembering&) = delete;
  Remembering& operator=(const Remembering&) = delete;

 private:
  Memory& memory_;
  Memory outer_;
};

class ValueLists::Nested {
 public:
  Nested(const PlanQuestions& questions, int& open, int most) : open_(open) {
    if (open >= most) {
      questions.fail(
          fmt::format("the items of `uniqueItems` arrays are such arrays themselves: to tell their "
                      "values apart takes more than {} lists of values in each other; bound how "
                      "deep they nest, or leave out uniqueItems",
                      most));
    }
    ++open_;
  }
  ~Nested() { --open_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int& open_;
};

// ---- Values of formulas -------------------------------------------------------------------------

const ValueList& ValueLists::of(FormulaId goal, uint64_t most) {
  if (const auto found = known_.find(goal); found != known_.end()) {
    if (found->second.all || found->second.entries.size() >= most) {
      return found->second;
    }
    most *= 2;  // the next question will be about a few more
  }
  ValueList result;
  const Nested nested(questions_, open_questions_, kMaxQuestions);
  const Remembering remembering(memory_);
  const bool settled = questions_.settles([&] {
    bool cut = false;
    int depth = kFirstListedDepth;
    result = *list(goal, most, depth, cut);
    while (cut && result.entries.size() < most) {
      if (!may_nest_deeper(most, depth)) {
        result.all = true;
        break;
      }
      if (depth == kMaxListedDepth) {
        questions_.fail(fmt::format(
            "the different values of an item of a `uniqueItems` array nest deeper than {}",
            kMaxListedDepth));
      }
      depth = deeper(depth);
      cut = false;
      result = *list(goal, most, depth, cut);
    }
  });
  return (settled ? known_[goal] : unsettled_) = std::move(result);
}

ValueList ValueLists::shallow(FormulaId goal, uint64_t most, int depth) {
  if (const auto found = known_.find(goal); found != known_.end()) {
    return found->second;
  }
  const Remembering remembering(memory_);
  bool cut = false;
  return *list(goal, most, depth, cut);
}

/// False when none of the goals that were listed has values that nest one deeper: a value of any of
/// them that nested deeper still would have such a value in it.
bool ValueLists::may_nest_deeper(uint64_t most, int depth) {
  std::unordered_set<FormulaId> done;
  for (bool more = true; more;) {
    std::vector<FormulaId> goals;
    for (const auto& [key, known] : memory_) {
      if (done.insert(key.first).second) {
        goals.push_back(key.first);
      }
    }
    for (const FormulaId goal : goals) {
      bool cut = false;
      const SharedList deeper = list(goal, most, depth + 1, cut);
      if (deeper->entries.size() >= most ||
          deeper->entries.size() > list(goal, most, depth, cut)->entries.size()) {
        return true;
      }
    }
    more = !goals.empty();
  }
  return false;
}

/// Values that nest no deeper than `depth`; `cut` is set when there may be deeper ones.
ValueLists::SharedList ValueLists::list(FormulaId goal, uint64_t most, int depth, bool& cut) {
  if (const auto found = memory_.find({goal, depth});
      found != memory_.end() && found->second.most >= most) {
    cut |= found->second.cut;
    return found->second.list;
  }
  bool own = false;
  auto made = std::make_shared<const ValueList>(make_list(goal, most, depth, own));
  cut |= own;
  memory_[{goal, depth}] = {made, most, own};
  return made;
}

ValueList ValueLists::make_list(FormulaId goal, uint64_t most, int depth, bool& cut) {
  questions_.count_step();
  const Nested nested(questions_, open_lists_, kMaxLists);
  const ValuePlan plan = plans_.value(goal);  // a copy: plans grow
  CollectedTexts found{most, depth - 1};
  add_scalars(plan, found);
  const bool deeper = !plan.arrays.empty() || !plan.objects.empty();
  if (deeper && depth == 0) {
    found.cut = true;
  } else {
    for (const ArrayStateId id : plan.arrays) {
      add_array(id, "[", false, found);
    }
    for (const ObjectStateId id : plan.objects) {
      add_object(id, {}, "{", found);
    }
  }
  cut |= found.cut;
  ValueList result;
  result.all = !found.full() && !found.cut;
  std::unordered_set<ValueId> known;
  for (std::string& text : found.texts) {
    questions_.count_bytes(text.size());
    const ValueId id = plans_.arrays().store().add(parse_json(text, "value"));
    if (known.insert(id).second) {
      result.entries.push_back({id, std::move(text)});
    }
  }
  if (result.entries.size() < most && found.full()) {  // some were equal
    return make_list(goal, 2 * most, depth, cut);
  }
  return result;
}

void ValueLists::add_scalars(const ValuePlan& plan, CollectedTexts& found) {
  for (const auto& [possible, text] : {std::pair(plan.can_be_null, "null"),
                                       {plan.can_be_false, "false"},
                                       {plan.can_be_true, "true"}}) {
    if (possible) {
      found.add(text);
    }
  }
  for (const uint32_t id : plan.numbers) {
    for (std::string& text : plans_.number(id).list(found.most)) {
      found.add(std::move(text));
    }
  }
  for (const StringPlan& text : plan.strings) {
    for (const std::u32string& word : words(text, found.most)) {
      found.add(to_json_string(to_utf8(word)));
    }
  }
}

/// Words of a string plan: those of small letters and digits alone where there are enough.
std::vector<std::u32string> ValueLists::words(const StringPlan& plan, uint64_t most) {
  RegexStore& regexes = formulas_.regexes();
  const RegexId language = plans_.bounded_language(plan);
  const RegexId legible = regexes.one_of(CodePoints({{'0', '9'}, {'a', 'z'}}));
  std::vector<std::u32string> words =
      regexes.list(regexes.all_of(language, regexes.repeat(legible, 0, std::nullopt)), most);
  return words.size() >= most ? words : regexes.list(language, most);
}

template <class Collect>
std::vector<std::string> ValueLists::collect(uint64_t most, const Collect& collect) {
  const Remembering remembering(memory_);
  CollectedTexts found{most, kFirstListedDepth};
  collect(found);
  while (found.cut && !found.full() && found.depth < kMaxListedDepth) {
    found = {most, deeper(found.depth)};
    collect(found);
  }
  return std::move(found.texts);
}

// ---- Arrays ------------------------------------------------------------------------------------

std::vector<std::string> ValueLists::array_rests(ArrayStateId id, bool next, uint64_t most) {
  return collect(most, [&](CollectedTexts& found) { add_array(id, "", next, found); });
}

void ValueLists::add_array(ArrayStateId id, const std::string& begun, bool next,
                           CollectedTexts& found) {
  questions_.count_step();
  ArrayStates& arrays = plans_.arrays();
  if (arrays.may_end(id)) {
    found.add(begun + "]");
  }
  if (found.full()) {
    return;
  }
  const std::string before = comma(begun, next);
  for (const Choice& way : arrays.ways(id)) {
    if (way.next != id || arrays.may_end(id)) {  // else no nearer to the end
      add_items(way, before, found);
    }
  }
}

/// The array refuses few of the values, and each that it takes leads to an end: lists more of them
/// until it takes enough.
void ValueLists::add_items(const Choice& way, const std::string& begun, CollectedTexts& found) {
  ArrayStates& arrays = plans_.arrays();
  uint64_t enough = std::bit_ceil(found.most + arrays.count_seen(way.next));
  for (bool more = true; more && !found.full(); enough *= 2) {
    const SharedList items = list(way.goal, enough, found.depth, found.cut);
    uint64_t taken = 0;
    for (const ValueEntry& item : items->entries) {
      if (found.full()) {
        return;
      }
      questions_.count_bytes(begun.size() + item.text.size());
      if (arrays.takes(way.next, item.id)) {
        ++taken;
        add_array(arrays.with_item(way.next, item.id), begun + item.text, true, found);
      }
    }
    more = items->entries.size() >= enough && taken < found.most;
  }
}

// ---- Objects -----------------------------------------------------------------------------------

std::vector<std::string> ValueLists::object_rests(ObjectStateId id, bool next, uint64_t most) {
  return collect(most, [&](CollectedTexts& found) { add_object(id, {}, next ? "," : "", found); });
}

std::vector<std::string> ValueLists::value_rests(const std::vector<Choice>& choices,
                                                 uint64_t most) {
  return collect(most, [&](CollectedTexts& found) { add_choices(choices, {}, ":", found); });
}

std::vector<std::string> ValueLists::name_rests(const Names& names, uint64_t most) {
  ObjectStates& objects = plans_.objects();
  return collect(most, [&](CollectedTexts& found) {
    for (uint32_t i = names.first; i < names.last; ++i) {
      const NameId name = objects.plan(names.object).names[i].name;
      const std::u32string rest = formulas_.name_points(name).substr(names.length);
      const std::vector<Choice> choices = objects.property(names.object, i);
      add_choices(choices, {}, to_json_string(to_utf8(rest)).substr(1) + ":", found);
    }
    const std::vector<uint32_t> seen = objects[names.object].seen_others;
    const uint32_t known = names.last - names.first;  // exceptions to the classes
    for (uint32_t i = 0; i < names.classes->size(); ++i) {
      for (const std::u32string& word :
           formulas_.regexes().list((*names.classes)[i], found.most + seen.size() + known)) {
        const uint32_t text = objects.text_of(names.text, word);
        if (!std::binary_search(seen.begin(), seen.end(), text) && !is_listed(names, word)) {
          add_choices(objects.other_property(names.object, i, text), {},
                      to_json_string(to_utf8(word)).substr(1) + ":", found);
        }
      }
    }
  });
}

/// True when a name of the plan goes on so.
bool ValueLists::is_listed(const Names& names, std::u32string_view rest) const {
  const std::vector<PropertyPlan>& all = plans_.objects().plan(names.object).names;
  return std::any_of(all.begin() + names.first, all.begin() + names.last,
                     [&](const PropertyPlan& property) {
                       const std::u32string_view name = formulas_.name_points(property.name);
                       return name.substr(names.length) == rest;
                     });
}

/// The plan's names as they may follow each other.
std::vector<size_t> ValueLists::order_of_names(ObjectStateId id) const {
  const std::vector<PropertyPlan>& names = plans_.objects().plan(id).names;
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (questions_.options().schema_order) {
    std::ranges::stable_sort(order, {}, [&](size_t i) { return names[i].rank; });
  }
  return order;
}

/// `begun` ends with a brace or comma.
void ValueLists::add_object(ObjectStateId id, const Place& place, const std::string& begun,
                            CollectedTexts& found) {
  questions_.count_step();
  if (plans_.objects().choices(id).may_end) {
    const bool ended = begun.ends_with(',');
    found.add(begun.substr(0, begun.size() - (ended ? 1 : 0)) + "}");
  }
  if (!found.full()) {
    add_names(id, place, begun, found);
  }
}

void ValueLists::add_names(ObjectStateId id, const Place& place, const std::string& begun,
                           CollectedTexts& found) {
  ObjectStates& objects = plans_.objects();
  const std::vector<size_t> order = order_of_names(id);
  for (size_t at = place.name; at < order.size() && !found.full(); ++at) {
    const size_t i = order[at];
    const PropertyPlan& property = objects.plan(id).names[i];
    const std::vector<Choice> choices = objects.property(id, static_cast<uint32_t>(i));
    add_choices(choices, {at + 1, 0, 0},
                begun + to_json_string(formulas_.name_text(property.name)) + ":", found);
    if (property.required && !objects[id].has_seen(i)) {
      return;  // it cannot come later in this order
    }
  }
  add_others(id, place, begun, found);
}

void ValueLists::add_others(ObjectStateId id, const Place& place, const std::string& begun,
                            CollectedTexts& found) {
  ObjectStates& objects = plans_.objects();
  const std::vector<bool> open = objects.choices(id).classes;
  const std::vector<uint32_t> seen = objects[id].seen_others;
  const size_t names = objects.plan(id).names.size();
  const Names all = {.object = id, .last = static_cast<uint32_t>(names)};
  for (size_t i = place.property_class; i < open.size() && !found.full(); ++i) {
    if (!open[i]) {
      continue;
    }
    size_t at = i == place.property_class ? place.word : 0;
    const std::vector<std::u32string> words = formulas_.regexes().list(
        objects.plan(id).classes[i].language, at + found.most + seen.size() + names);
    for (; at < words.size() && !found.full(); ++at) {
      const uint32_t text = objects.text_of(GrowingTrie::kRoot, words[at]);
      if (!std::binary_search(seen.begin(), seen.end(), text) && !is_listed(all, words[at])) {
        add_choices(objects.other_property(id, static_cast<uint32_t>(i), text), {names, i, at + 1},
                    begun + to_json_string(to_utf8(words[at])) + ":", found);
      }
    }
  }
}

void ValueLists::add_choices(const std::vector<Choice>& choices, const Place& place,
                             const std::string& begun, CollectedTexts& found) {
  const std::vector<Choice> all(choices.begin(), choices.end());  // the plans' own may move
  for (const Choice& choice : all) {
    if (found.full()) {
      return;
    }
    const SharedList values = list(choice.goal, found.most, found.depth, found.cut);
    for (const ValueEntry& value : values->entries) {
      if (!found.full()) {
        questions_.count_bytes(begun.size() + value.text.size());
        add_object(choice.next, place, begun + value.text + ",", found);
      }
    }
  }
}

}  // namespace specdec
