#include "grammar/schema/schema_unevaluated.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "grammar/schema/schema_choices.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

}  // namespace

FormulaId SchemaFormulas::Unevaluated::expand(Subschema here) {
  std::vector<FormulaId> parts;
  for (const Branch& branch : branches(here)) {
    parts.push_back(branch.formula);
  }
  if (!too_many_) {
    return self_.formulas_.any_of(parts);
  }
  if (const auto found = expand_by_name(here)) {
    return *found;
  }
  throw GrammarError(
      fmt::format("{}: there are more than {} ways through anyOf, oneOf and if below an "
                  "unevaluatedProperties or unevaluatedItems; use fewer of them, or list the "
                  "properties and items beside it",
                  self_.document_.location(here.node), self_.options_.max_branches));
}

bool SchemaFormulas::Unevaluated::Evaluated::empty() const {
  return !all_properties && !all_items && items == 0 && names.empty() && patterns.empty() &&
         contained.empty();
}

void SchemaFormulas::Unevaluated::Evaluated::merge(const Evaluated& other) {
  all_properties |= other.all_properties;
  all_items |= other.all_items;
  items = std::max(items, other.items);
  names.insert(names.end(), other.names.begin(), other.names.end());
  patterns.insert(patterns.end(), other.patterns.begin(), other.patterns.end());
  contained.insert(contained.end(), other.contained.begin(), other.contained.end());
}

SchemaFormulas::Unevaluated::Branches SchemaFormulas::Unevaluated::product(const Branches& left,
                                                                           const Branches& right) {
  too_many_ |= left.size() * right.size() > self_.options_.max_branches;
  if (too_many_) {
    return {};
  }
  Branches result;
  for (const Branch& a : left) {
    for (const Branch& b : right) {
      Branch both{self_.formulas_.all_of({a.formula, b.formula}), a.evaluated};
      both.evaluated.merge(b.evaluated);
      if (both.formula != FormulaStore::kFalse) {
        result.push_back(std::move(both));
      }
    }
  }
  return result;
}

SchemaFormulas::Unevaluated::Evaluated SchemaFormulas::Unevaluated::locally_evaluated(
    Subschema here) {
  Evaluated result;
  if (const JsonValue* properties = self_.keywords_.find(here.node, "properties")) {
    for (const JsonMember& member : properties->members) {
      result.names.push_back(self_.formulas_.name(member.name));
    }
  }
  if (const JsonValue* patterns = self_.keywords_.find(here.node, "patternProperties")) {
    for (const JsonMember& member : patterns->members) {
      result.patterns.push_back(
          self_.assertions_.pattern(here.node, "patternProperties", member.name));
    }
  }
  result.all_properties = self_.keywords_.find(here.node, "additionalProperties") != nullptr;
  const JsonValue* items = self_.keywords_.find(here.node, "items");
  const bool old = items != nullptr && items->is(Type::kArray);
  const bool has_prefix = !self_.keywords_.is_older(here.node, SchemaDraft::k2020);
  result.items = old          ? items->items.size()
                 : has_prefix ? self_.keywords_.list_size(here.node, "prefixItems")
                              : 0;
  result.all_items = (items != nullptr && !old) ||
                     (old && self_.keywords_.find(here.node, "additionalItems") != nullptr);
  if (self_.keywords_.find(here.node, "contains") != nullptr &&
      self_.document_.draft(here.node) == SchemaDraft::k2020) {
    result.contained.push_back(self_.below(here, "contains"));
  }
  return result;
}

SchemaFormulas::Unevaluated::Branches SchemaFormulas::Unevaluated::branches_of(SchemaNode node,
                                                                               uint32_t scope) {
  const FormulaId formula = self_.schema(node, scope);
  if (formula <= FormulaStore::kTrue) {
    return formula == FormulaStore::kTrue ? Branches{{}} : Branches{};
  }
  const Atom atom = self_.formulas_.atom_of(formula);
  return branches({atom.a, atom.b});
}

SchemaFormulas::Unevaluated::Branches SchemaFormulas::Unevaluated::any_branches(Subschema here) {
  Branches passed;  // at least one held so far
  Branches none = {{}};
  for (size_t i = 0; i < self_.keywords_.list_size(here.node, "anyOf"); ++i) {
    const SchemaNode node = self_.document_.child(here.node, "anyOf", i);
    const Branches holds = branches_of(node, here.scope);
    const Branches fails = {{self_.formulas_.negate(self_.schema(node, here.scope)), {}}};
    Branches next = product(none, holds);
    const bool plain = std::all_of(holds.begin(), holds.end(),
                                   [](const Branch& branch) { return branch.evaluated.empty(); });
    if (plain) {  // when another has held already, this one changes nothing
      next.insert(next.end(), passed.begin(), passed.end());
    } else {
      for (const Branches* now : {&holds, &fails}) {
        const Branches more = product(passed, *now);
        next.insert(next.end(), more.begin(), more.end());
      }
    }
    none = product(none, fails);
    passed = std::move(next);
  }
  return passed;
}

SchemaFormulas::Unevaluated::Branches SchemaFormulas::Unevaluated::one_branches(Subschema here) {
  Branches result;
  const size_t size = self_.keywords_.list_size(here.node, "oneOf");
  const std::vector<FormulaId> others = Choices(self_).no_others(here, size);
  for (size_t i = 0; i < size; ++i) {
    Branches now = branches_of(self_.document_.child(here.node, "oneOf", i), here.scope);
    now = product(now, {{others[i], {}}});
    result.insert(result.end(), now.begin(), now.end());
  }
  return result;
}

SchemaFormulas::Unevaluated::Branches SchemaFormulas::Unevaluated::if_branches(Subschema here) {
  const auto part = [&](const char* name) {
    return self_.keywords_.find(here.node, name) == nullptr
               ? Branches{{}}
               : branches_of(self_.document_.child(here.node, name), here.scope);
  };
  Branches result = product(part("if"), part("then"));
  const Branches fails = {{self_.formulas_.negate(self_.below(here, "if")), {}}};
  const Branches otherwise = product(fails, part("else"));
  result.insert(result.end(), otherwise.begin(), otherwise.end());
  return result;
}

void SchemaFormulas::Unevaluated::apply_unevaluated(Subschema here, Branch& branch) {
  std::vector<FormulaId> parts = {branch.formula};
  Evaluated& seen = branch.evaluated;
  if (self_.keywords_.find(here.node, "unevaluatedProperties") != nullptr) {
    if (!seen.all_properties) {
      std::sort(seen.names.begin(), seen.names.end());
      seen.names.erase(std::unique(seen.names.begin(), seen.names.end()), seen.names.end());
      parts.push_back(self_.formulas_.properties(self_.others(seen.names, seen.patterns),
                                                 self_.below(here, "unevaluatedProperties")));
    }
    seen.all_properties = true;
  }
  if (self_.keywords_.find(here.node, "unevaluatedItems") != nullptr) {
    if (!seen.all_items) {
      std::vector<FormulaId> allowed = seen.contained;
      allowed.push_back(self_.below(here, "unevaluatedItems"));
      parts.push_back(
          self_.formulas_.atom({.kind = AtomKind::kItems,
                                .min = seen.items,
                                .formula = self_.formulas_.any_of(std::move(allowed))}));
    }
    seen.all_items = true;
  }
  branch.formula = self_.formulas_.all_of(parts);
}

SchemaFormulas::Unevaluated::Branches SchemaFormulas::Unevaluated::branches(Subschema here) {
  const auto key = std::pair(here.node, here.scope);
  if (!self_.open_.insert(key).second) {
    throw GrammarError(fmt::format(
        "{}: this schema applies itself to the same value without end ($ref in a circle)",
        self_.document_.location(here.node)));
  }
  Branches result = {{self_.local(here), {}}};
  for (const SchemaNode target : self_.references(here)) {
    result = product(result, branches_of(target, here.scope));
  }
  const bool only_reference = self_.keywords_.is_older(here.node, SchemaDraft::k2019) &&
                              self_.keywords_.find(here.node, "$ref") != nullptr;
  if (!only_reference) {
    result = product(result, {{FormulaStore::kTrue, locally_evaluated(here)}});
    for (size_t i = 0; i < self_.keywords_.list_size(here.node, "allOf"); ++i) {
      result =
          product(result, branches_of(self_.document_.child(here.node, "allOf", i), here.scope));
    }
    if (self_.keywords_.list_size(here.node, "anyOf") > 0) {
      result = product(result, any_branches(here));
    }
    if (self_.keywords_.list_size(here.node, "oneOf") > 0) {
      result = product(result, one_branches(here));
    }
    if (self_.keywords_.find(here.node, "not") != nullptr) {
      result = product(result, {{self_.formulas_.negate(self_.below(here, "not")), {}}});
    }
    if (self_.keywords_.find(here.node, "if") != nullptr) {
      result = product(result, if_branches(here));
    }
    result = product(result, dependent_branches(here));
    if (self_.has_unevaluated(here)) {
      for (Branch& branch : result) {
        apply_unevaluated(here, branch);
      }
    }
  }
  self_.open_.erase(key);
  return result;
}

SchemaFormulas::Unevaluated::Branches SchemaFormulas::Unevaluated::dependent_branches(
    Subschema here) {
  Branches result = {{}};
  for (const char* name : {"dependentSchemas", "dependencies"}) {
    const JsonValue* value = self_.keywords_.find(here.node, name);
    if (value == nullptr) {
      continue;
    }
    for (const JsonMember& member : value->members) {
      if (member.value.is(Type::kArray)) {
        continue;
      }
      const NameId id = self_.formulas_.name(member.name);
      Branches now = {{self_.if_present(id, FormulaStore::kFalse), {}}};
      const Branches present = {{self_.formulas_.all_of({self_.formulas_.only(Type::kObject),
                                                         self_.formulas_.required(id)}),
                                 {}}};
      const Branches holds =
          product(present, branches_of(self_.document_.child(here.node, name, member), here.scope));
      now.insert(now.end(), holds.begin(), holds.end());
      result = product(result, now);
    }
  }
  std::vector<FormulaId> plain;
  self_.add_dependencies(here, plain);
  return product(result, {{self_.formulas_.all_of(std::move(plain)), {}}});
}

// ---- By name ------------------------------------------------------------------------------------

std::optional<FormulaId> SchemaFormulas::Unevaluated::expand_by_name(Subschema here) {
  if (self_.keywords_.find(here.node, "unevaluatedItems") != nullptr) {
    return std::nullopt;
  }
  FormulaStore& formulas = self_.formulas_;
  std::vector<Evaluator> conditional;
  std::vector<Evaluator> all = {{FormulaStore::kTrue, locally_evaluated(here)}};
  collect_in_place(here, FormulaStore::kTrue, all);
  Evaluated always;
  for (Evaluator& one : all) {
    if (one.condition == FormulaStore::kTrue) {
      always.merge(one.evaluated);
    } else if (!one.evaluated.patterns.empty()) {
      return std::nullopt;
    } else {
      conditional.push_back(std::move(one));
    }
  }
  const FormulaId whole = formulas.all_of({self_.local(here), self_.in_place(here)});
  if (always.all_properties) {
    return whole;
  }
  std::map<NameId, std::vector<FormulaId>> by_name;  // where it is evaluated
  std::vector<FormulaId> of_others;
  for (const Evaluator& one : conditional) {
    for (const NameId name : one.evaluated.names) {
      by_name[name].push_back(one.condition);
    }
    if (one.evaluated.all_properties) {
      of_others.push_back(one.condition);
    }
  }
  for (const NameId name : always.names) {
    by_name.erase(name);
  }
  const FormulaId value = self_.below(here, "unevaluatedProperties");
  const RegexId evaluated = formulas.regexes().any_of(always.patterns);
  std::vector<FormulaId> parts = {whole};
  for (auto& [name, conditions] : by_name) {
    always.names.push_back(name);
    if (!formulas.regexes().matches(evaluated, formulas.name_points(name))) {
      conditions.insert(conditions.end(), of_others.begin(), of_others.end());
      conditions.push_back(formulas.properties(formulas.one_name(name), value));
      parts.push_back(formulas.any_of(conditions));
    }
  }
  std::ranges::sort(always.names);
  always.names.erase(std::unique(always.names.begin(), always.names.end()), always.names.end());
  of_others.push_back(formulas.properties(self_.others(always.names, always.patterns), value));
  parts.push_back(formulas.any_of(of_others));
  return formulas.all_of(parts);
}

void SchemaFormulas::Unevaluated::collect(SchemaNode node, uint32_t scope, FormulaId condition,
                                          std::vector<Evaluator>& found) {
  const FormulaId formula = self_.schema(node, scope);
  if (formula <= FormulaStore::kTrue) {
    return;
  }
  const Atom atom = self_.formulas_.atom_of(formula);
  const Subschema here{atom.a, atom.b};
  const auto key = std::pair(here.node, here.scope);
  if (!self_.open_.insert(key).second) {
    throw GrammarError(fmt::format(
        "{}: this schema applies itself to the same value without end ($ref in a circle)",
        self_.document_.location(here.node)));
  }
  const bool only_reference = self_.keywords_.is_older(here.node, SchemaDraft::k2019) &&
                              self_.keywords_.find(here.node, "$ref") != nullptr;
  Evaluated evaluated = only_reference ? Evaluated() : locally_evaluated(here);
  evaluated.all_properties |= self_.has_unevaluated(here) &&
                              self_.keywords_.find(here.node, "unevaluatedProperties") != nullptr;
  found.push_back({condition, std::move(evaluated)});
  collect_in_place(here, condition, found);
  self_.open_.erase(key);
}

void SchemaFormulas::Unevaluated::collect_in_place(Subschema here, FormulaId condition,
                                                   std::vector<Evaluator>& found) {
  FormulaStore& formulas = self_.formulas_;
  SchemaDocument& document = self_.document_;
  for (const SchemaNode target : self_.references(here)) {
    collect(target, here.scope, condition, found);
  }
  if (self_.keywords_.is_older(here.node, SchemaDraft::k2019) &&
      self_.keywords_.find(here.node, "$ref") != nullptr) {
    return;
  }
  for (const char* list : {"allOf", "anyOf", "oneOf"}) {
    for (size_t i = 0; i < self_.keywords_.list_size(here.node, list); ++i) {
      const FormulaId holds =
          std::string_view(list) == "allOf" ? FormulaStore::kTrue : self_.below(here, list, i);
      collect(document.child(here.node, list, i), here.scope, formulas.all_of({condition, holds}),
              found);
    }
  }
  if (self_.keywords_.find(here.node, "if") != nullptr) {
    const FormulaId holds = self_.below(here, "if");
    for (const char* part : {"if", "then", "else"}) {
      if (self_.keywords_.find(here.node, part) != nullptr) {
        const bool otherwise = std::string_view(part) == "else";
        collect(document.child(here.node, part), here.scope,
                formulas.all_of({condition, otherwise ? formulas.negate(holds) : holds}), found);
      }
    }
  }
  for (const char* list : {"dependentSchemas", "dependencies"}) {
    const JsonValue* value = self_.keywords_.find(here.node, list);
    for (size_t i = 0; value != nullptr && i < value->members.size(); ++i) {
      const JsonMember& member = value->members[i];
      if (!member.value.is(Type::kArray)) {
        collect(document.child(here.node, list, member), here.scope,
                formulas.all_of({condition, formulas.only(Type::kObject),
                                 formulas.required(formulas.name(member.name))}),
                found);
      }
    }
  }
}

}  // namespace specdec
