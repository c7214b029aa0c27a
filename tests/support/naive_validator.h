#pragma once
#include <gmpxx.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema/json_value.h"

namespace specdec {

/// JSON Schema 2020-12 read word for word: evaluates each keyword on a value. Knows no references
/// but "#/..." pointers, and no formats.
class NaiveValidator {
 public:
  /// Borrows the schema. Throws std::invalid_argument when it holds a keyword that is not known
  /// here.
  explicit NaiveValidator(const JsonValue& schema);

  bool accepts(const JsonValue& value) const { return check(schema_, value).valid; }

 private:
  /// What a schema says of a value, and what of it was evaluated.
  struct Result {
    bool valid = true;
    std::set<std::string> names;
    std::set<size_t> items;
    void merge(const Result& other);
  };

  void require_known(const JsonValue& schema) const;
  Result check(const JsonValue& schema, const JsonValue& value) const;
  bool holds(const JsonValue& schema, const JsonValue& value) const {
    return check(schema, value).valid;
  }
  bool check_plain(const JsonValue& schema, const JsonValue& value) const;
  bool check_number(const JsonValue& schema, const JsonValue& value) const;
  bool check_string(const JsonValue& schema, const JsonValue& value) const;
  void check_array(const JsonValue& schema, const JsonValue& value, Result& result) const;
  void check_object(const JsonValue& schema, const JsonValue& value, Result& result) const;
  void check_in_place(const JsonValue& schema, const JsonValue& value, Result& result) const;
  void check_unevaluated(const JsonValue& schema, const JsonValue& value, Result& result) const;
  const JsonValue& find(const std::string& reference) const;

  const JsonValue& schema_;
};

/// Whether values are equal to JSON Schema: numbers by value, objects in any order.
bool equal_values(const JsonValue& a, const JsonValue& b);
/// Throws std::invalid_argument when the exponent is too large to compute with.
mpq_class exact_number(const std::string& text);

}  // namespace specdec
