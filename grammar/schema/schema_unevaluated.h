#pragma once
#include <optional>
#include <vector>

#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// unevaluatedProperties and unevaluatedItems need to know which subschemas held: every way through
/// the applicators is followed apart, with what it evaluates. Where these are too many, each
/// property is looked at by itself: it is evaluated where one of those that evaluate it holds.
class SchemaFormulas::Unevaluated {
 public:
  explicit Unevaluated(SchemaFormulas& self) : self_(self) {}

  /// What a subschema with one of these keywords says.
  FormulaId expand(Subschema here);

 private:
  /// What one way through a schema has evaluated (JSON Schema 2020-12, section 11).
  struct Evaluated {
    bool all_properties = false;
    bool all_items = false;
    uint64_t items = 0;
    std::vector<NameId> names;
    std::vector<RegexId> patterns;
    std::vector<FormulaId> contained;
    bool empty() const;
    void merge(const Evaluated& other);
  };
  struct Branch {
    FormulaId formula = FormulaStore::kTrue;
    Evaluated evaluated;
  };
  using Branches = std::vector<Branch>;
  /// What a subschema evaluates when a condition holds, beside the whole schema.
  struct Evaluator {
    FormulaId condition = FormulaStore::kTrue;
    Evaluated evaluated;
  };

  Branches branches(Subschema here);
  Branches branches_of(SchemaNode node, uint32_t scope);
  Branches any_branches(Subschema here);
  Branches one_branches(Subschema here);
  Branches if_branches(Subschema here);
  Branches dependent_branches(Subschema here);
  Branches product(const Branches& left, const Branches& right);
  Evaluated locally_evaluated(Subschema here);
  void apply_unevaluated(Subschema here, Branch& branch);
  /// What a subschema evaluates, by names; nothing when it cannot be told by names alone.
  std::optional<FormulaId> expand_by_name(Subschema here);
  /// Adds what a subschema evaluates, and those that it applies to the same value.
  void collect(SchemaNode node, uint32_t scope, FormulaId condition, std::vector<Evaluator>& found);
  void collect_in_place(Subschema here, FormulaId condition, std::vector<Evaluator>& found);

  SchemaFormulas& self_;
  bool too_many_ = false;  ///< ways
};

}  // namespace specdec
