#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "grammar/schema/formula.h"
#include "grammar/schema/schema_keywords.h"

namespace specdec {

/// What the keywords without subschemas say of a value, as formulas: its type, the values that it
/// may equal, and what numbers and strings have to be.
class SchemaAssertions {
 public:
  /// Borrows both. `assert_formats`: `format` is an assertion everywhere.
  SchemaAssertions(const SchemaDocument& document, FormulaStore& formulas, bool assert_formats)
      : document_(document),
        keywords_(document),
        formulas_(formulas),
        assert_formats_(assert_formats) {}

  /// Appends those of a subschema.
  void add_all(SchemaNode node, std::vector<FormulaId>& parts);
  /// A regular expression that stands under a keyword.
  RegexId pattern(SchemaNode node, std::string_view keyword, const std::string& text) const;

 private:
  void add_any_type(SchemaNode node, std::vector<FormulaId>& parts);
  void add_numbers(SchemaNode node, std::vector<FormulaId>& parts);
  void add_strings(SchemaNode node, std::vector<FormulaId>& parts);
  void add_format(SchemaNode node, std::vector<FormulaId>& parts);
  TypeMask type_named(SchemaNode node, const JsonValue& name, bool& integer) const;

  const SchemaDocument& document_;
  SchemaKeywords keywords_;
  FormulaStore& formulas_;
  bool assert_formats_;
};

}  // namespace specdec
