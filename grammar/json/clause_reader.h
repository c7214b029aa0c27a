#pragma once
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "grammar/json/formula_truths.h"
#include "grammar/json/value_plan.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// Disjunctions about properties with given names, such as dependentRequired and most if/then, as
/// clauses of objects. A clause is looked at where one of its names comes: n of them need no 2^n
/// alternatives.
class ClauseReader {
 public:
  static constexpr uint64_t kMaxConstants = 1'000;  ///< that a `listing` formula has

  /// Borrows all three.
  ClauseReader(FormulaStore& formulas, SchemaFormulas& schemas, FormulaTruths& truths)
      : formulas_(formulas), schemas_(schemas), truths_(truths) {}

  /// The clause that a choice is; nullptr when it speaks of anything else.
  const ObjectClause* read(FormulaId choice);
  /// The formula or its contrary, where it lists its values: few constants; else kFalse.
  FormulaId listing_of(FormulaId formula);

 private:
  /// What a formula says that only refers to a subschema: equal ones then are the same.
  FormulaId meaning(FormulaId formula);
  std::optional<ObjectClause> parts(FormulaId formula, int depth);
  std::optional<ObjectClause> product(FormulaId formula, int depth);
  std::optional<ObjectClause> literal(const Atom& atom, int depth);
  /// What the form of a formula tells of its values.
  struct Form {
    uint64_t most = kUnbounded;  ///< there are no more; neither lists nor objects when bounded
    bool spelled = false;        ///< it may matter how a number is written
  };
  bool is_listing(FormulaId formula);
  Form form(FormulaId formula, int depth);
  Form form_of_parts(FormulaId formula, int depth);
  Form form_of_atom(const Atom& atom, TypeMask types, int depth);

  FormulaStore& formulas_;
  SchemaFormulas& schemas_;
  FormulaTruths& truths_;
  std::unordered_map<FormulaId, std::optional<ObjectClause>> known_;
  std::unordered_map<FormulaId, Form> forms_;  ///< of what is made of others
};

}  // namespace specdec
