#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/json/clause_reader.h"
#include "grammar/json/feasibility.h"
#include "grammar/json/formula_truths.h"
#include "grammar/json/value_class.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// Splits objects by a property whose value many conditions compare with constants, such as "kind".
/// Each case decides these conditions: n of them leave n + 2 cases, not 2^n alternatives.
class PropertyCases {
 public:
  struct Case {
    FormulaId when = FormulaStore::kTrue;  ///< what it says of the property
    std::vector<FormulaId> left;           ///< of the choices
  };

  /// Borrows all six.
  PropertyCases(FormulaStore& formulas, SchemaFormulas& schemas, PlanQuestions& questions,
                FormulaTruths& truths, Feasibility& feasibility, ClauseReader& clauses)
      : formulas_(formulas),
        schemas_(schemas),
        questions_(questions),
        truths_(truths),
        feasibility_(feasibility),
        clauses_(clauses) {}

  /// How many alternatives the choices lead to one by one, about.
  double count_ways(std::span<const FormulaId> choices);
  /// Cases that split the choices; nothing when no property makes them far fewer.
  std::optional<std::vector<Case>> split(std::span<const FormulaId> choices);

 private:
  class Reader;
  /// A property is compared with constants.
  struct Test {
    NameId name = 0;
    FormulaId listing = FormulaStore::kFalse;  ///< of the constants
    uint32_t rank = kNoRank;
    auto operator<=>(const Test&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Tests {
    double ways = 1;
    std::vector<Test> all;  ///< sorted
  };

  const Tests& tests(FormulaId formula, int depth = 0);
  Tests find_tests(FormulaId formula, int depth);
  Tests tests_of_atom(const Atom& atom, int depth);
  /// Tests of each property that has many; at most of the 4 properties with most.
  std::vector<std::vector<Test>> many_tests(std::span<const FormulaId> choices);
  std::vector<Case> split_by(const std::vector<Test>& tests, std::span<const FormulaId> choices);
  FormulaId join(const std::vector<ValueClass>& all, const std::vector<bool>& which);

  FormulaStore& formulas_;
  SchemaFormulas& schemas_;
  PlanQuestions& questions_;
  FormulaTruths& truths_;
  Feasibility& feasibility_;
  ClauseReader& clauses_;
  std::unordered_map<FormulaId, Tests> tests_;
};

}  // namespace specdec
