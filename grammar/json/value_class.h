#pragma once
#include <span>
#include <vector>

#include "grammar/json/feasibility.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/json_value.h"

namespace specdec {

/// Values that some formulas do not tell apart.
struct ValueClass {
  std::vector<JsonValue> values;
  bool others = false;       ///< all values but these
  std::vector<bool> truths;  ///< of the formulas

  /// "The value is one of them."
  FormulaId formula(FormulaStore& formulas) const {
    const FormulaId any = formulas.equals_any(values);
    return others ? formulas.negate(any) : any;
  }
};

/// The values of formulas that list theirs, by which of the formulas list them, after all others:
/// however many constants there are, each is told from all others at once.
std::vector<ValueClass> find_value_classes(Feasibility& feasibility,
                                           std::span<const FormulaId> listing);

}  // namespace specdec
