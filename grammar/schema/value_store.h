#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "grammar/schema/json_value.h"

namespace specdec {

/// A JSON value in a ValueStore.
using ValueId = uint32_t;

/// The number's one text: its digits without zeros at either end, and an exponent. Of any size.
std::string canonical_number(std::string_view text);
/// Numbers are canonical, members sorted by name: equal as JSON Schema compares values, equal text.
JsonValue canonical_value(JsonValue value);

/// JSON values, numbered: equal ones, as JSON Schema compares them, have the same number.
class ValueStore {
 public:
  ValueId add(const JsonValue& value);
  /// A value in its canonical form.
  const JsonValue& operator[](ValueId id) const { return values_[id]; }

 private:
  std::deque<JsonValue> values_;
  std::unordered_map<std::string, ValueId> ids_;  ///< by canonical text
};

}  // namespace specdec
