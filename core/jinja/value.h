#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/jinja/text.h"

namespace specdec {

/// What a name, attribute or item that is not there gives: prints as nothing, counts as false.
struct JinjaUndefined {
  std::string name;  ///< what was looked for
};
struct JinjaNone {};
struct JinjaList;
struct JinjaDict;
struct JinjaNamespace;
struct JinjaLoop;
struct JinjaFunction;

/// A value in a template. Lists and dicts never change.
using JinjaValue = std::variant<JinjaUndefined, JinjaNone, bool, int64_t, double, JinjaText,
                                std::shared_ptr<const JinjaList>, std::shared_ptr<const JinjaDict>,
                                std::shared_ptr<JinjaNamespace>, std::shared_ptr<const JinjaLoop>,
                                std::shared_ptr<JinjaFunction>>;

/// How often parts may hold parts.
constexpr int64_t kMaxJinjaDepth = 200;

struct JinjaList {
  enum class Kind : uint8_t {
    kList,
    kTuple,
    kView,     ///< range(2), dict.items(): has a length, but no items by number
    kIterator  ///< selectattr: read once, and true even if empty
  };
  std::vector<JinjaValue> values;
  Kind kind = Kind::kList;
  mutable bool read = false;  ///< an iterator that was
  int64_t depth = 1;          ///< 1 + the largest of the parts
};

/// Keys are texts, integers, booleans and none, in the order in which they were written.
struct JinjaDict {
  struct Entry {
    /// Throws Error for a key of another kind.
    Entry(JinjaValue entry_key, JinjaValue entry_value);
    Entry(std::string_view entry_key, JinjaValue entry_value)
        : Entry(JinjaValue(JinjaText(entry_key)), std::move(entry_value)) {}

    JinjaValue key;
    JinjaValue value;
  };
  std::vector<Entry> entries;
  int64_t depth = 1;  ///< 1 + the largest of the values

  const JinjaValue* find(std::string_view key, JinjaBudget& budget) const;
  /// The value of a key; nullptr also for a key that a dict cannot have.
  const JinjaValue* find(const JinjaValue& key, JinjaBudget& budget) const;
};

struct JinjaNamespace {
  std::map<std::string, JinjaValue, std::less<>> attributes;
};

/// The variable `loop`, in one turn of a loop.
struct JinjaLoop {
  std::shared_ptr<const JinjaList> items;
  int64_t index = 0;  ///< from 0
};

struct JinjaArguments {
  JinjaBudget& budget;
  std::vector<JinjaValue> values;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

/// The arguments of a call by its parameters.
struct JinjaBoundArguments {
  JinjaBudget& budget;
  std::vector<const JinjaValue*> values;  ///< nullptr where not given

  const JinjaValue* operator[](size_t i) const { return values[i]; }
};

struct JinjaFunction {
  std::string name;
  std::function<JinjaValue(const JinjaArguments&)> call;
  int64_t depth = 1;  ///< 1 + that of what it holds
};

JinjaValue jinja_text(std::string_view text);
JinjaValue jinja_list(std::vector<JinjaValue> values,
                      JinjaList::Kind kind = JinjaList::Kind::kList);
/// A dictionary; a key that comes twice has its last value, at its first place.
JinjaValue jinja_dict(std::vector<JinjaDict::Entry> entries, JinjaBudget& budget);
/// `held`: what `call` keeps, if it is a value.
JinjaValue jinja_function(std::string_view name,
                          std::function<JinjaValue(const JinjaArguments& given)> call,
                          const JinjaValue& held = JinjaNone{});

/// The parameters `names` of a call by their order or name. Throws for others; `function` is the
/// function's name.
JinjaBoundArguments bound_arguments(const JinjaArguments& arguments,
                                    const std::vector<std::string_view>& names,
                                    std::string_view function);

/// All throw Error for what Python refuses, and for what is not supported here, naming it.
bool is_true(const JinjaValue& value);
bool are_equal(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget);
/// Whether `part in whole`, as Python has it.
bool contains(const JinjaValue& whole, const JinjaValue& part, JinjaBudget& budget);
/// Order of two texts, by their bytes, or of two integers: below 0 where `a` comes first, 0 for
/// equals.
int64_t ordered(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget);
/// The text of a value as str() of Python writes it.
JinjaText printed(const JinjaValue& value);
/// What a for loop goes over.
std::vector<JinjaValue> items_of(const JinjaValue& value, JinjaBudget& budget);
int64_t length_of(const JinjaValue& value, JinjaBudget& budget);
bool is_integer(const JinjaValue& value);
/// An integer, which a bool is too.
int64_t integer_of(const JinjaValue& value);
const JinjaText& text_of(const JinjaValue& value);
/// "an undefined value (x)", "a text": for messages.
std::string kind_of(const JinjaValue& value);

template <class T>
bool holds(const JinjaValue& value) {
  return std::holds_alternative<T>(value);
}
/// The list that a value is; nullptr where it is none.
inline const JinjaList* as_list(const JinjaValue& value) {
  const auto* list = std::get_if<std::shared_ptr<const JinjaList>>(&value);
  return list == nullptr ? nullptr : list->get();
}
inline const JinjaDict* as_dict(const JinjaValue& value) {
  const auto* dict = std::get_if<std::shared_ptr<const JinjaDict>>(&value);
  return dict == nullptr ? nullptr : dict->get();
}

}  // namespace specdec
