#include "grammar/json/formula_truths.h"

#include "core/error.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

constexpr int kMaxAppliedDepth = 200;  ///< of subschemas applied to one value inside each other

/// The type whose values an atom restricts.
Type type_spoken_of(AtomKind kind) {
  switch (kind) {
    case AtomKind::kText:
    case AtomKind::kLength:
      return Type::kString;
    case AtomKind::kRange:
    case AtomKind::kMultiple:
    case AtomKind::kNotMultiple:
    case AtomKind::kNumbers:
    case AtomKind::kNotNumbers:
    case AtomKind::kWrittenWhole:
    case AtomKind::kNotWrittenWhole:
      return Type::kNumber;
    case AtomKind::kItem:
    case AtomKind::kItems:
    case AtomKind::kContains:
    case AtomKind::kItemCount:
    case AtomKind::kUnique:
    case AtomKind::kRepeated:
      return Type::kArray;
    default:
      return Type::kObject;
  }
}

}  // namespace

Truth FormulaTruths::of(FormulaId formula, Type type) {
  const Truths found = truths(formula, type_bit(type));
  return (found.always & type_bit(type)) != 0 ? Truth::kTrue
         : (found.open & type_bit(type)) != 0 ? Truth::kOpen
                                              : Truth::kFalse;
}

FormulaTruths::Truths FormulaTruths::truths(FormulaId formula, TypeMask asked, int depth) {
  if (formula <= FormulaStore::kTrue) {
    return {kAllTypes, formula == FormulaStore::kTrue ? kAllTypes : 0, 0};
  }
  if (formula >= truths_.size()) {
    truths_.resize(formulas_.size());
  }
  asked &= ~truths_[formula].known;
  if (asked != 0) {
    const Truths found = formulas_.kind(formula) == FormulaStore::Kind::kAtom
                             ? truths_of_atom(formulas_.atom_of(formula), asked, depth)
                             : truths_of_parts(formula, asked, depth);
    Truths& all = truths_[formula];
    all.known |= asked;
    all.always |= found.always & asked;
    all.open |= found.open & asked;
  }
  return truths_[formula];
}

FormulaTruths::Truths FormulaTruths::truths_of_atom(const Atom& atom, TypeMask asked, int depth) {
  if (atom.kind == AtomKind::kTypes) {
    return {kAllTypes, atom.a, 0};
  }
  if (!atom.is_schema()) {
    const TypeMask own = type_bit(type_spoken_of(atom.kind));
    return {kAllTypes, kAllTypes & ~own, own};
  }
  if (depth > kMaxAppliedDepth) {
    questions_.fail(fmt::format(
        "a schema applies itself to the same value without end, or {} subschemas deep ($ref in a "
        "circle through allOf, anyOf, oneOf, not or if)",
        kMaxAppliedDepth));
  }
  return truths(schemas_.expand(atom), asked, depth + 1);
}

FormulaTruths::Truths FormulaTruths::truths_of_parts(FormulaId formula, TypeMask asked, int depth) {
  const bool all = formulas_.kind(formula) == FormulaStore::Kind::kAll;
  Truths result;
  for (const FormulaId part : formulas_.parts(formula)) {
    const Truths one = truths(part, asked, depth);
    const TypeMask decided = all ? ~(one.always | one.open) : one.always;  // whatever the others
    result.always |= all ? 0 : decided & asked;
    asked &= ~decided;
    result.open |= one.open;
    if (asked == 0) {
      break;
    }
  }
  result.open &= asked;
  result.always |= all ? asked & ~result.open : 0;
  return result;
}

}  // namespace specdec
