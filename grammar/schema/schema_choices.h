#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// What anyOf and oneOf say. Subschemas that list their values (`const`, `enum`) become one list,
/// as one `enum` has: however many there are, they are told apart by the first characters.
class SchemaFormulas::Choices {
 public:
  explicit Choices(SchemaFormulas& self) : self_(self) {}

  FormulaId any_of(Subschema here, size_t size);
  FormulaId one_of(Subschema here, size_t size);
  /// For each part of a oneOf the formula that no other part holds.
  std::vector<FormulaId> no_others(Subschema here, size_t size);

 private:
  using Values = std::vector<JsonValue>;

  /// The values of a subschema that says what they are and nothing else; nothing for any other.
  /// Throws GrammarError for values that cannot be told apart.
  std::optional<Values> listed(SchemaNode node, int references = 0);
  /// Leaves out the values of other types; false where that is not told by their texts.
  bool keep_type(SchemaNode node, Values& values) const;
  FormulaId choose(std::vector<FormulaId> others, const Values& values);

  SchemaFormulas& self_;
};

}  // namespace specdec
