#pragma once
#include <map>
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

  /// Adds the values of a subschema that says what they are and nothing else, those of one `enum`
  /// or `const` once however many references lead to it; false for any other subschema, and where
  /// references of the document have already copied as many values as one list may have. Throws
  /// GrammarError for values that cannot be told apart.
  bool add_listed(SchemaNode node);
  bool copy_values(SchemaNode source, bool referred);
  /// Where the values of such a subschema stand: itself, or where references lead.
  std::optional<SchemaNode> source_of(SchemaNode node, int references = 0) const;
  /// Values of an `enum` or `const`; nothing where their texts do not tell their types.
  std::optional<Values> listed(SchemaNode source) const;
  /// Leaves out the values of other types; false where that is not told by their texts.
  bool keep_type(SchemaNode node, Values& values) const;
  FormulaId choose(std::vector<FormulaId> others);

  SchemaFormulas& self_;
  Values values_;                     ///< of the lists that were added
  std::map<SchemaNode, bool> added_;  ///< by where they stand: whether they are among these
};

}  // namespace specdec
