#include "grammar/json/clause_reader.h"

#include <algorithm>
#include <bit>

namespace specdec {
namespace {

constexpr size_t kMaxClauseParts = 63;  ///< of a clause
constexpr int kMaxClauseDepth = 32;     ///< of subschemas

}  // namespace

const ObjectClause* ClauseReader::read(FormulaId choice) {
  auto found = known_.find(choice);
  if (found == known_.end()) {
    auto clause = parts(choice, 0);
    if (clause) {  // what needs few properties first
      std::ranges::stable_sort(*clause, {}, [](const ClausePart& part) {
        return std::ranges::count(part, true, &ClauseLiteral::present);
      });
    }
    found = known_.emplace(choice, std::move(clause)).first;
  }
  return found->second ? &*found->second : nullptr;
}

std::optional<ObjectClause> ClauseReader::parts(FormulaId formula, int depth) {
  const Truth truth = truths_.of(formula, JsonValue::Type::kObject);
  if (truth != Truth::kOpen) {
    return truth == Truth::kTrue ? ObjectClause{{}} : ObjectClause{};
  }
  if (formulas_.kind(formula) == FormulaStore::Kind::kAtom) {
    return literal(formulas_.atom_of(formula), depth);
  }
  if (formulas_.kind(formula) == FormulaStore::Kind::kAll) {
    return product(formula, depth);
  }
  ObjectClause all;
  for (const FormulaId one : formulas_.parts(formula)) {
    const auto more = parts(one, depth);
    if (!more || all.size() + more->size() > kMaxClauseParts) {
      return std::nullopt;
    }
    all.insert(all.end(), more->begin(), more->end());
  }
  return all;
}

std::optional<ObjectClause> ClauseReader::product(FormulaId formula, int depth) {
  ObjectClause all = {{}};
  for (const FormulaId one : formulas_.parts(formula)) {
    const auto factor = parts(one, depth);
    if (!factor || all.size() * factor->size() > kMaxClauseParts) {
      return std::nullopt;
    }
    ObjectClause longer;
    for (const ClausePart& part : all) {
      for (const ClausePart& more : *factor) {
        longer.push_back(part);
        longer.back().insert(longer.back().end(), more.begin(), more.end());
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::optional<ObjectClause> ClauseReader::literal(const Atom& atom, int depth) {
  if (atom.is_schema()) {
    return depth < kMaxClauseDepth ? parts(schemas_.expand(atom), depth + 1) : std::nullopt;
  }
  ClauseLiteral literal;
  if (atom.kind == AtomKind::kRequired) {
    literal = {.name = atom.a, .present = true};
  } else if (atom.kind == AtomKind::kProperties || atom.kind == AtomKind::kExists) {
    const KeySet& set = formulas_.key_set(atom.a);
    if (set.name == 0) {
      return std::nullopt;
    }
    const bool present = atom.kind == AtomKind::kExists;
    literal = {.name = set.name - 1,
               .formula = atom.formula,
               .present = present,
               .rank = present ? kNoRank : atom.b};
  } else {
    return std::nullopt;
  }
  literal.meaning = meaning(literal.formula);
  literal.listing = listing_of(literal.formula);
  return ObjectClause{{literal}};
}

// ---- Formulas that list their values ------------------------------------------------------------

FormulaId ClauseReader::listing_of(FormulaId formula) {
  const FormulaId contrary = formulas_.negate(formula);
  return is_listing(contrary) ? contrary : is_listing(formula) ? formula : FormulaStore::kFalse;
}

FormulaId ClauseReader::meaning(FormulaId formula) {
  for (int depth = 0;
       depth < kMaxClauseDepth && formulas_.kind(formula) == FormulaStore::Kind::kAtom &&
       formulas_.atom_of(formula).is_schema();
       ++depth) {
    formula = schemas_.expand(formulas_.atom_of(formula));
  }
  return formula;
}

/// True when it is the same as being one of few constants.
bool ClauseReader::is_listing(FormulaId formula) {
  const Form found = formula > FormulaStore::kTrue ? form(formula, 0) : Form();
  return found.most <= kMaxConstants && !found.spelled;
}

ClauseReader::Form ClauseReader::form(FormulaId formula, int depth) {
  const FormulaStore::Kind kind = formulas_.kind(formula);
  if (kind == FormulaStore::Kind::kConstant) {
    return {formula == FormulaStore::kFalse ? 0 : kUnbounded};
  }
  if (kind == FormulaStore::Kind::kAtom) {
    return form_of_atom(formulas_.atom_of(formula), kAllTypes, depth);
  }
  if (const auto known = forms_.find(formula); known != forms_.end()) {
    return known->second;
  }
  const Form found = form_of_parts(formula, depth);
  return forms_[formula] = found;
}

ClauseReader::Form ClauseReader::form_of_parts(FormulaId formula, int depth) {
  const bool all = formulas_.kind(formula) == FormulaStore::Kind::kAll;
  const std::vector<FormulaId>& parts = formulas_.parts(formula);
  const auto atom = [&](FormulaId part) {
    return formulas_.kind(part) == FormulaStore::Kind::kAtom ? &formulas_.atom_of(part) : nullptr;
  };
  TypeMask types = kAllTypes;
  for (const FormulaId part : parts) {
    types &= all && atom(part) && atom(part)->kind == AtomKind::kTypes ? atom(part)->a : kAllTypes;
  }
  Form whole{all ? kUnbounded : 0};
  for (const FormulaId part : parts) {
    const Form one = atom(part) ? form_of_atom(*atom(part), types, depth) : form(part, depth);
    const uint64_t sum = whole.most + std::min(one.most, kUnbounded - whole.most);
    whole.most = all ? std::min(whole.most, one.most) : sum;
    whole.spelled |= one.spelled;
  }
  return whole;
}

/// `types`: those that are left beside it.
ClauseReader::Form ClauseReader::form_of_atom(const Atom& atom, TypeMask types, int depth) {
  constexpr TypeMask kNames = type_bit(JsonValue::Type::kNull) | type_bit(JsonValue::Type::kFalse) |
                              type_bit(JsonValue::Type::kTrue);
  const bool texts = types == type_bit(JsonValue::Type::kString);
  const bool numbers = types == type_bit(JsonValue::Type::kNumber);
  RegexStore& regexes = formulas_.regexes();
  switch (atom.kind) {
    case AtomKind::kSchema:
    case AtomKind::kNotSchema:
      return depth < kMaxClauseDepth ? form(schemas_.expand(atom), depth + 1)
                                     : Form{.spelled = true};
    case AtomKind::kTypes:
      return {(atom.a & ~kNames) == 0 ? static_cast<uint64_t>(std::popcount(atom.a)) : kUnbounded};
    case AtomKind::kText:
      return {texts && regexes.is_finite(atom.a) ? regexes.count(atom.a, kMaxConstants + 1)
                                                 : kUnbounded};
    case AtomKind::kNumbers:
      return {numbers ? formulas_.number_set(atom.a).size() : kUnbounded};
    case AtomKind::kRange:
      return {numbers && atom.a != 0 && atom.a == atom.b ? 1 : kUnbounded};
    case AtomKind::kWrittenWhole:
    case AtomKind::kNotWrittenWhole:
      return {.spelled = true};
    default:
      return {};
  }
}

}  // namespace specdec
