// Unevaluated properties and items need to know which subschemas held: every way through the
// applicators is followed apart, with what it evaluates.
#include <algorithm>

#include "core/error.h"
#include "grammar/schema/schema_formulas.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

}  // namespace

bool SchemaFormulas::Evaluated::empty() const {
  return !all_properties && !all_items && items == 0 && names.empty() && patterns.empty() &&
         contained.empty();
}

void SchemaFormulas::Evaluated::merge(const Evaluated& other) {
  all_properties |= other.all_properties;
  all_items |= other.all_items;
  items = std::max(items, other.items);
  names.insert(names.end(), other.names.begin(), other.names.end());
  patterns.insert(patterns.end(), other.patterns.begin(), other.patterns.end());
  contained.insert(contained.end(), other.contained.begin(), other.contained.end());
}

bool SchemaFormulas::has_unevaluated(Place place) const {
  return !is_older(place, SchemaDraft::k2019) &&
         (keyword(place, "unevaluatedProperties") != nullptr ||
          keyword(place, "unevaluatedItems") != nullptr);
}

SchemaFormulas::Branches SchemaFormulas::product(Place place, const Branches& left,
                                                 const Branches& right) const {
  if (left.size() * right.size() > options_.max_branches) {
    throw GrammarError(
        fmt::format("{}: there are more than {} ways through anyOf, oneOf and if below an "
                    "unevaluatedProperties "
                    "or unevaluatedItems; raise max_branches, or use fewer",
                    document_.location(place.node), options_.max_branches));
  }
  Branches result;
  for (const Branch& a : left) {
    for (const Branch& b : right) {
      Branch both{formulas_.all_of({a.formula, b.formula}), a.evaluated};
      both.evaluated.merge(b.evaluated);
      if (both.formula != FormulaStore::kFalse) {
        result.push_back(std::move(both));
      }
    }
  }
  return result;
}

SchemaFormulas::Evaluated SchemaFormulas::locally_evaluated(Place place) {
  Evaluated result;
  if (const JsonValue* properties = keyword(place, "properties")) {
    for (const JsonMember& member : properties->members) {
      result.names.push_back(formulas_.name(member.name));
    }
  }
  if (const JsonValue* patterns = keyword(place, "patternProperties")) {
    for (const JsonMember& member : patterns->members) {
      result.patterns.push_back(pattern(place, "patternProperties", member.name));
    }
  }
  result.all_properties = keyword(place, "additionalProperties") != nullptr;
  const JsonValue* items = keyword(place, "items");
  const bool old = items != nullptr && items->is(Type::kArray);
  result.items = old ? items->items.size() : list_size(place, "prefixItems");
  result.all_items =
      (items != nullptr && !old) || (old && keyword(place, "additionalItems") != nullptr);
  if (keyword(place, "contains") != nullptr && document_.draft(place.node) == SchemaDraft::k2020) {
    result.contained.push_back(below(place, "contains"));
  }
  return result;
}

SchemaFormulas::Branches SchemaFormulas::branches_of(SchemaNode node, uint32_t scope) {
  const FormulaId formula = schema(node, scope);
  if (formula <= FormulaStore::kTrue) {
    return formula == FormulaStore::kTrue ? Branches{{}} : Branches{};
  }
  const Atom atom = formulas_.atom_of(formula);
  return branches({atom.a, atom.b});
}

SchemaFormulas::Branches SchemaFormulas::any_branches(Place place) {
  Branches passed;  // at least one held so far
  Branches none = {{}};
  for (size_t i = 0; i < list_size(place, "anyOf"); ++i) {
    const SchemaNode node = document_.child(place.node, "anyOf", i);
    const Branches holds = branches_of(node, place.scope);
    const Branches fails = {{formulas_.negate(schema(node, place.scope)), {}}};
    Branches next = product(place, none, holds);
    const bool plain = std::all_of(holds.begin(), holds.end(),
                                   [](const Branch& branch) { return branch.evaluated.empty(); });
    if (plain) {  // when another has held already, this one changes nothing
      next.insert(next.end(), passed.begin(), passed.end());
    } else {
      for (const Branches* now : {&holds, &fails}) {
        const Branches more = product(place, passed, *now);
        next.insert(next.end(), more.begin(), more.end());
      }
    }
    none = product(place, none, fails);
    passed = std::move(next);
  }
  return passed;
}

SchemaFormulas::Branches SchemaFormulas::one_branches(Place place) {
  Branches result;
  const size_t size = list_size(place, "oneOf");
  for (size_t i = 0; i < size; ++i) {
    Branches now = branches_of(document_.child(place.node, "oneOf", i), place.scope);
    std::vector<FormulaId> others;
    for (size_t j = 0; j < size; ++j) {
      if (j != i) {
        others.push_back(formulas_.negate(below(place, "oneOf", j)));
      }
    }
    now = product(place, now, {{formulas_.all_of(std::move(others)), {}}});
    result.insert(result.end(), now.begin(), now.end());
  }
  return result;
}

SchemaFormulas::Branches SchemaFormulas::if_branches(Place place) {
  const auto part = [&](const char* name) {
    return keyword(place, name) == nullptr
               ? Branches{{}}
               : branches_of(document_.child(place.node, name), place.scope);
  };
  Branches result = product(place, part("if"), part("then"));
  const Branches fails = {{formulas_.negate(below(place, "if")), {}}};
  const Branches otherwise = product(place, fails, part("else"));
  result.insert(result.end(), otherwise.begin(), otherwise.end());
  return result;
}

void SchemaFormulas::apply_unevaluated(Place place, Branch& branch) {
  std::vector<FormulaId> parts = {branch.formula};
  Evaluated& seen = branch.evaluated;
  if (keyword(place, "unevaluatedProperties") != nullptr) {
    if (!seen.all_properties) {
      std::sort(seen.names.begin(), seen.names.end());
      seen.names.erase(std::unique(seen.names.begin(), seen.names.end()), seen.names.end());
      parts.push_back(formulas_.properties(others(seen.names, seen.patterns),
                                           below(place, "unevaluatedProperties")));
    }
    seen.all_properties = true;
  }
  if (keyword(place, "unevaluatedItems") != nullptr) {
    if (!seen.all_items) {
      std::vector<FormulaId> allowed = seen.contained;
      allowed.push_back(below(place, "unevaluatedItems"));
      parts.push_back(formulas_.atom({.kind = AtomKind::kItems,
                                      .min = seen.items,
                                      .formula = formulas_.any_of(std::move(allowed))}));
    }
    seen.all_items = true;
  }
  branch.formula = formulas_.all_of(parts);
}

SchemaFormulas::Branches SchemaFormulas::branches(Place place) {
  const auto key = std::pair(place.node, place.scope);
  if (!open_.insert(key).second) {
    throw GrammarError(fmt::format(
        "{}: this schema applies itself to the same value without end ($ref in a circle)",
        document_.location(place.node)));
  }
  Branches result = {{local(place), {}}};
  for (const SchemaNode target : references(place)) {
    result = product(place, result, branches_of(target, place.scope));
  }
  const bool only_reference =
      is_older(place, SchemaDraft::k2019) && keyword(place, "$ref") != nullptr;
  if (!only_reference) {
    result = product(place, result, {{FormulaStore::kTrue, locally_evaluated(place)}});
    for (size_t i = 0; i < list_size(place, "allOf"); ++i) {
      result =
          product(place, result, branches_of(document_.child(place.node, "allOf", i), place.scope));
    }
    if (list_size(place, "anyOf") > 0) {
      result = product(place, result, any_branches(place));
    }
    if (list_size(place, "oneOf") > 0) {
      result = product(place, result, one_branches(place));
    }
    if (keyword(place, "not") != nullptr) {
      result = product(place, result, {{formulas_.negate(below(place, "not")), {}}});
    }
    if (keyword(place, "if") != nullptr) {
      result = product(place, result, if_branches(place));
    }
    result = product(place, result, dependent_branches(place));
    if (has_unevaluated(place)) {
      for (Branch& branch : result) {
        apply_unevaluated(place, branch);
      }
    }
  }
  open_.erase(key);
  return result;
}

SchemaFormulas::Branches SchemaFormulas::dependent_branches(Place place) {
  Branches result = {{}};
  for (const char* name : {"dependentSchemas", "dependencies"}) {
    const JsonValue* value = keyword(place, name);
    if (value == nullptr) {
      continue;
    }
    for (const JsonMember& member : value->members) {
      if (member.value.is(Type::kArray)) {
        continue;
      }
      const NameId id = formulas_.name(member.name);
      Branches now = {{if_present(id, FormulaStore::kFalse), {}}};
      const Branches present = {
          {formulas_.all_of({formulas_.only(Type::kObject), formulas_.required(id)}), {}}};
      const Branches holds = product(
          place, present, branches_of(document_.child(place.node, name, member), place.scope));
      now.insert(now.end(), holds.begin(), holds.end());
      result = product(place, result, now);
    }
  }
  std::vector<FormulaId> plain;
  add_dependencies(place, plain);
  return product(place, result, {{formulas_.all_of(std::move(plain)), {}}});
}

}  // namespace specdec
