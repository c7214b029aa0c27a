#pragma once
#include <cstdint>
#include <vector>

#include "grammar/json/feasibility.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// What a formula says of the values of one type.
enum class Truth : uint8_t { kFalse, kTrue, kOpen };  ///< of none, of all, of some perhaps

/// Truth of formulas by type of value, before any value is looked at. Kept once found.
class FormulaTruths {
 public:
  /// Borrows all three.
  FormulaTruths(FormulaStore& formulas, SchemaFormulas& schemas, PlanQuestions& questions)
      : formulas_(formulas), schemas_(schemas), questions_(questions) {}

  Truth of(FormulaId formula, JsonValue::Type type);
  /// Types all of whose values satisfy the formula, among those that are asked for.
  TypeMask always(FormulaId formula, TypeMask asked) { return truths(formula, asked).always; }

 private:
  /// Truths by type: which values a formula holds of, and of which it depends on the value.
  struct Truths {
    TypeMask known = 0;  ///< types that were asked for
    TypeMask always = 0;
    TypeMask open = 0;
  };

  Truths truths(FormulaId formula, TypeMask asked, int depth = 0);
  Truths truths_of_atom(const Atom& atom, TypeMask asked, int depth);
  Truths truths_of_parts(FormulaId formula, TypeMask asked, int depth);

  FormulaStore& formulas_;
  SchemaFormulas& schemas_;
  PlanQuestions& questions_;
  std::vector<Truths> truths_;  ///< by formula
};

}  // namespace specdec
