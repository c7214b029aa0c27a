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
using JinjaValue = std::variant<JinjaUndefined, JinjaNone, bool, int64_t, JinjaText,
                                std::shared_ptr<const JinjaList>, std::shared_ptr<const JinjaDict>,
                                std::shared_ptr<JinjaNamespace>, std::shared_ptr<const JinjaLoop>,
                                std::shared_ptr<JinjaFunction>>;

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
};

/// Keys are texts, in the order in which they were written.
struct JinjaDict {
  std::vector<std::pair<std::string, JinjaValue>> entries;
  const JinjaValue* find(std::string_view key) const;
};

struct JinjaNamespace {
  std::map<std::string, JinjaValue, std::less<>> attributes;
};

/// The variable `loop`, in one turn of a loop.
struct JinjaLoop {
  std::shared_ptr<const std::vector<JinjaValue>> items;
  int64_t index = 0;  ///< from 0
};

struct JinjaArguments {
  std::vector<JinjaValue> values;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

struct JinjaFunction {
  std::string name;
  std::function<JinjaValue(const JinjaArguments&)> call;
};

JinjaValue jinja_text(std::string_view text);
JinjaValue jinja_list(std::vector<JinjaValue> values,
                      JinjaList::Kind kind = JinjaList::Kind::kList);

/// All throw Error for what Python refuses, and for what is not supported here, naming it.
bool is_true(const JinjaValue& value);
bool are_equal(const JinjaValue& a, const JinjaValue& b);
/// As str() writes it.
JinjaText printed(const JinjaValue& value);
/// What a for loop goes over.
std::vector<JinjaValue> items_of(const JinjaValue& value);
int64_t length_of(const JinjaValue& value);
/// An integer, which a bool is too.
int64_t integer_of(const JinjaValue& value);
const JinjaText& text_of(const JinjaValue& value);
/// "an undefined value (x)", "a text": for messages.
std::string kind_of(const JinjaValue& value);

template <class T>
bool holds(const JinjaValue& value) {
  return std::holds_alternative<T>(value);
}
/// nullptr where the value is no list.
inline const JinjaList* as_list(const JinjaValue& value) {
  const auto* list = std::get_if<std::shared_ptr<const JinjaList>>(&value);
  return list == nullptr ? nullptr : list->get();
}
inline const JinjaDict* as_dict(const JinjaValue& value) {
  const auto* dict = std::get_if<std::shared_ptr<const JinjaDict>>(&value);
  return dict == nullptr ? nullptr : dict->get();
}

}  // namespace specdec
