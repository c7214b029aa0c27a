#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/json/array_states.h"
#include "grammar/json/feasibility.h"
#include "grammar/json/object_states.h"
#include "grammar/json/value_plan.h"

namespace specdec {

class JsonPlans;
struct CollectedTexts;

/// Different values of formulas, and different ways to go on with arrays and objects, one by one:
/// of all of them, or of as many as are asked for.
class ValueLists {
 public:
  /// Borrows all three.
  ValueLists(FormulaStore& formulas, PlanQuestions& questions, JsonPlans& plans)
      : formulas_(formulas), questions_(questions), plans_(plans) {}

  /// All values, or `most` of them and perhaps more.
  const ValueList& of(FormulaId goal, uint64_t most);
  /// All values that nest no deeper than `depth`, or `most` of them and perhaps more.
  ValueList shallow(FormulaId goal, uint64_t most, int depth);
  /// Texts that end an array or object: `next` after an item or property.
  std::vector<std::string> array_rests(ArrayStateId id, bool next, uint64_t most);
  std::vector<std::string> object_rests(ObjectStateId id, bool next, uint64_t most);
  /// Texts that end an object which goes on with one of these choices of a value; name_rests: only
  /// with a name of the plan from `first` to `last` or in one of the languages, whose rest comes.
  std::vector<std::string> value_rests(const std::vector<Choice>& choices, uint64_t most);
  struct Names {
    ObjectStateId object = 0;
    uint32_t first = 0, last = 0, length = 0;  ///< what was read of them
    const std::vector<RegexId>* classes = nullptr;
    uint32_t text = 0;
  };
  std::vector<std::string> name_rests(const Names& names, uint64_t most);
  std::vector<std::u32string> words(const StringPlan& plan, uint64_t most);

 private:
  /// Where the next name of an object stands among those that may come: each set of names comes in
  /// one order only.
  struct Place {
    size_t name = 0;
    size_t property_class = 0;
    size_t word = 0;
  };
  template <class Collect>
  std::vector<std::string> collect(uint64_t most, const Collect& collect);
  using SharedList = std::shared_ptr<const ValueList>;  ///< a longer one may replace it meanwhile
  struct Known {
    SharedList list;
    uint64_t most = 0;
    bool cut = false;
  };
  using Memory = std::map<std::pair<FormulaId, int>, Known>;
  /// Lists by goal and depth, remembered for the time of one question.
  class Remembering;
  /// Counts what is open: questions, or lists, in each other; and bounds them.
  class Nested;
  SharedList list(FormulaId goal, uint64_t most, int depth, bool& cut);
  bool may_nest_deeper(uint64_t most, int depth);
  ValueList make_list(FormulaId goal, uint64_t most, int depth, bool& cut);
  void add_scalars(const ValuePlan& plan, CollectedTexts& found);
  void add_array(ArrayStateId id, const std::string& begun, bool next, CollectedTexts& found);
  void add_items(const Choice& way, const std::string& begun, CollectedTexts& found);
  void add_object(ObjectStateId id, const Place& place, const std::string& begun,
                  CollectedTexts& found);
  void add_names(ObjectStateId id, const Place& place, const std::string& begun,
                 CollectedTexts& found);
  void add_others(ObjectStateId id, const Place& place, const std::string& begun,
                  CollectedTexts& found);
  void add_choices(const std::vector<Choice>& choices, const Place& place, const std::string& begun,
                   CollectedTexts& found);
  bool is_listed(const Names& names, std::u32string_view rest) const;
  std::vector<size_t> order_of_names(ObjectStateId id) const;

  FormulaStore& formulas_;
  PlanQuestions& questions_;
  JsonPlans& plans_;
  std::unordered_map<FormulaId, ValueList> known_;
  ValueList unsettled_;
  Memory memory_;
  int open_questions_ = 0, open_lists_ = 0;
};

}  // namespace specdec
