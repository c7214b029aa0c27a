#include "grammar/schema/schema_formulas.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/schema/schema_choices.h"
#include "grammar/schema/schema_unevaluated.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

/// Keeps a node from being read while it is being read.
class Opened {
 public:
  using Key = std::pair<SchemaNode, uint32_t>;
  Opened(std::set<Key>& open, Key key, const std::string& location) : open_(open), key_(key) {
    if (!open_.insert(key_).second) {
      throw GrammarError(fmt::format(
          "{}: this schema applies itself to the same value without end ($ref in a circle)",
          location));
    }
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { open_.erase(key_); }

 private:
  std::set<Key>& open_;
  Key key_;
};

}  // namespace

SchemaFormulas::SchemaFormulas(SchemaDocument& document, FormulaStore& formulas,
                               SchemaFormulaOptions options)
    : document_(document),
      keywords_(document),
      assertions_(document, formulas, options.assert_formats),
      formulas_(formulas),
      options_(options),
      scopes_{{}},
      scope_ids_{{{}, 0}} {}

FormulaId SchemaFormulas::root() { return schema(document_.root(), 0); }

FormulaId SchemaFormulas::schema(SchemaNode node, uint32_t scope) {
  Interruption::check();
  const JsonValue& value = document_.value(node);
  if (value.is_boolean()) {
    return value.is(Type::kTrue) ? FormulaStore::kTrue : FormulaStore::kFalse;
  }
  const uint32_t resource = document_.resource(node);
  const Scope& outer = scopes_[scope];
  if (document_.is_dynamic(resource) &&
      std::find(outer.begin(), outer.end(), resource) == outer.end()) {
    Scope inner = outer;
    inner.push_back(resource);
    const auto [entry, fresh] = scope_ids_.emplace(inner, static_cast<uint32_t>(scopes_.size()));
    scope = entry->second;
    if (fresh) {
      scopes_.push_back(std::move(inner));
    }
  }
  return formulas_.atom({.kind = AtomKind::kSchema, .a = node, .b = scope});
}

FormulaId SchemaFormulas::below(Subschema here, std::string_view keyword) {
  return schema(document_.child(here.node, keyword), here.scope);
}

FormulaId SchemaFormulas::below(Subschema here, std::string_view keyword, size_t index) {
  return schema(document_.child(here.node, keyword, index), here.scope);
}

FormulaId SchemaFormulas::below(Subschema here, std::string_view keyword, const JsonMember& part) {
  return schema(document_.child(here.node, keyword, part), here.scope);
}

FormulaId SchemaFormulas::expand(const Atom& atom) {
  const uint64_t key = uint64_t{atom.a} << 32 | atom.b;
  FormulaId formula = expanded_.find(key);
  if (formula == FlatMap::kNone) {
    formula = expand_node({atom.a, atom.b});
    expanded_.add(key, formula);
  }
  return atom.kind == AtomKind::kSchema ? formula : formulas_.negate(formula);
}

bool SchemaFormulas::has_unevaluated(Subschema here) const {
  return !keywords_.is_older(here.node, SchemaDraft::k2019) &&
         (keywords_.find(here.node, "unevaluatedProperties") != nullptr ||
          keywords_.find(here.node, "unevaluatedItems") != nullptr);
}

FormulaId SchemaFormulas::expand_node(Subschema here) {
  const JsonValue& value = document_.value(here.node);
  if (value.is_boolean()) {
    return value.is(Type::kTrue) ? FormulaStore::kTrue : FormulaStore::kFalse;
  }
  if (has_unevaluated(here)) {
    return Unevaluated(*this).expand(here);
  }
  return formulas_.all_of({local(here), in_place(here)});
}

FormulaId SchemaFormulas::local(Subschema here) {
  std::vector<FormulaId> parts;
  if (keywords_.is_older(here.node, SchemaDraft::k2019) &&
      keywords_.find(here.node, "$ref") != nullptr) {
    return FormulaStore::kTrue;  // its neighbours do not count
  }
  assertions_.add_all(here.node, parts);
  add_arrays(here, parts);
  add_objects(here, parts);
  return formulas_.all_of(parts);
}

void SchemaFormulas::add_items(Subschema here, std::vector<FormulaId>& parts) {
  const JsonValue* items = keywords_.find(here.node, "items");
  const bool old = items != nullptr && items->is(Type::kArray);
  const std::string_view prefix = old ? "items" : "prefixItems";
  const bool has_prefix = old || !keywords_.is_older(here.node, SchemaDraft::k2020);
  const size_t size = has_prefix ? keywords_.list_size(here.node, prefix) : 0;
  for (size_t i = 0; i < size; ++i) {
    parts.push_back(
        formulas_.atom({.kind = AtomKind::kItem, .min = i, .formula = below(here, prefix, i)}));
  }
  const std::string_view rest = old ? "additionalItems" : "items";
  if (keywords_.find(here.node, rest) != nullptr) {
    parts.push_back(
        formulas_.atom({.kind = AtomKind::kItems, .min = size, .formula = below(here, rest)}));
  }
}

void SchemaFormulas::add_arrays(Subschema here, std::vector<FormulaId>& parts) {
  add_items(here, parts);
  const bool counted = document_.has_assertions(here.node);
  if (keywords_.find(here.node, "contains") != nullptr &&
      !keywords_.is_older(here.node, SchemaDraft::kDraft6)) {
    const bool limits = counted && !keywords_.is_older(here.node, SchemaDraft::k2019);
    parts.push_back(formulas_.atom(
        {.kind = AtomKind::kContains,
         .min = limits ? keywords_.count(here.node, "minContains", 1) : 1,
         .max = limits ? keywords_.count(here.node, "maxContains", kUnbounded) : kUnbounded,
         .formula = below(here, "contains")}));
  }
  if (!counted) {
    return;
  }
  parts.push_back(formulas_.atom({.kind = AtomKind::kItemCount,
                                  .min = keywords_.count(here.node, "minItems", 0),
                                  .max = keywords_.count(here.node, "maxItems", kUnbounded)}));
  if (const JsonValue* unique = keywords_.find(here.node, "uniqueItems")) {
    if (!unique->is_boolean()) {
      keywords_.fail(here.node, "uniqueItems", "must be true or false");
    }
    if (unique->is(Type::kTrue)) {
      parts.push_back(formulas_.atom({.kind = AtomKind::kUnique, .a = here.node}));
    }
  }
}

KeySet SchemaFormulas::others(const std::vector<NameId>& names,
                              const std::vector<RegexId>& patterns) {
  RegexStore& regexes = formulas_.regexes();
  return {regexes.complement(regexes.any_of(patterns)), names, 0};
}

void SchemaFormulas::add_properties(Subschema here, std::vector<FormulaId>& parts) {
  const auto members = [&](std::string_view name) -> const std::vector<JsonMember>& {
    static const std::vector<JsonMember> kNone;
    const JsonValue* value = keywords_.find(here.node, name);
    if (value != nullptr && !value->is(Type::kObject)) {
      keywords_.fail(here.node, name, "must be an object of schemas");
    }
    return value == nullptr ? kNone : value->members;
  };
  std::vector<NameId> names;
  for (const JsonMember& member : members("properties")) {
    names.push_back(formulas_.name(member.name));
    parts.push_back(formulas_.properties(formulas_.one_name(names.back()),
                                         below(here, "properties", member), next_rank_++));
  }
  std::vector<RegexId> patterns;
  for (const JsonMember& member : members("patternProperties")) {
    patterns.push_back(assertions_.pattern(here.node, "patternProperties", member.name));
    parts.push_back(
        formulas_.properties({patterns.back(), {}, 0}, below(here, "patternProperties", member)));
  }
  if (keywords_.find(here.node, "additionalProperties") != nullptr) {
    parts.push_back(
        formulas_.properties(others(names, patterns), below(here, "additionalProperties")));
  }
  if (keywords_.find(here.node, "propertyNames") != nullptr &&
      !keywords_.is_older(here.node, SchemaDraft::kDraft6)) {
    const RegexId allowed = text_language(below(here, "propertyNames"));
    parts.push_back(formulas_.properties({formulas_.regexes().complement(allowed), {}, 0},
                                         FormulaStore::kFalse));
  }
}

FormulaId SchemaFormulas::if_present(NameId name, FormulaId then) {
  return formulas_.any_of({formulas_.types(kAllTypes & ~type_bit(Type::kObject)),
                           formulas_.properties(formulas_.one_name(name), FormulaStore::kFalse),
                           then});
}

void SchemaFormulas::add_dependencies(Subschema here, std::vector<FormulaId>& parts) {
  for (const std::string_view name : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const JsonValue* value = keywords_.find(here.node, name);
    const bool newer = name != "dependencies" && keywords_.is_older(here.node, SchemaDraft::k2019);
    if (value == nullptr || newer) {
      continue;
    }
    if (!value->is(Type::kObject)) {
      keywords_.fail(here.node, name, "must be an object");
    }
    for (const JsonMember& member : value->members) {
      const auto& [key, dependency] = member;
      const bool is_list = dependency.is(Type::kArray);
      if (name != "dependencies" && is_list != (name == "dependentRequired")) {
        keywords_.fail(here.node, name,
                       is_list ? "must be an object of schemas" : "must be an object of lists");
      }
      if (!is_list) {
        parts.push_back(if_present(formulas_.name(key), below(here, name, member)));
        continue;
      }
      std::vector<FormulaId> needed;
      for (const JsonValue& other : dependency.items) {
        if (!other.is(Type::kString)) {
          keywords_.fail(here.node, name, "must list names of properties");
        }
        needed.push_back(formulas_.required(formulas_.name(other.text)));
      }
      parts.push_back(if_present(formulas_.name(key), formulas_.all_of(std::move(needed))));
    }
  }
}

void SchemaFormulas::add_objects(Subschema here, std::vector<FormulaId>& parts) {
  add_properties(here, parts);
  if (!document_.has_assertions(here.node)) {
    return;
  }
  if (const JsonValue* required = keywords_.find(here.node, "required")) {
    if (!required->is(Type::kArray)) {
      keywords_.fail(here.node, "required", "must be a list of names");
    }
    for (const JsonValue& name : required->items) {
      if (!name.is(Type::kString)) {
        keywords_.fail(here.node, "required", "must be a list of names");
      }
      parts.push_back(formulas_.required(formulas_.name(name.text)));
    }
  }
  parts.push_back(formulas_.atom({.kind = AtomKind::kPropertyCount,
                                  .min = keywords_.count(here.node, "minProperties", 0),
                                  .max = keywords_.count(here.node, "maxProperties", kUnbounded)}));
}

std::vector<SchemaNode> SchemaFormulas::references(Subschema here) {
  std::vector<SchemaNode> targets;
  const auto text = [&](std::string_view name) -> const JsonValue* {
    const JsonValue* value = keywords_.find(here.node, name);
    if (value != nullptr && !value->is(Type::kString)) {
      keywords_.fail(here.node, name, "must be a string");
    }
    return value;
  };
  if (const JsonValue* reference = text("$ref")) {
    targets.push_back(document_.resolve(here.node, reference->text));
  }
  if (document_.draft(here.node) == SchemaDraft::k2020) {
    if (const JsonValue* reference = text("$dynamicRef")) {
      targets.push_back(document_.resolve_dynamic(here.node, reference->text, scopes_[here.scope]));
    }
  }
  if (document_.draft(here.node) == SchemaDraft::k2019 && text("$recursiveRef") != nullptr) {
    targets.push_back(document_.resolve_recursive(here.node, scopes_[here.scope]));
  }
  return targets;
}

FormulaId SchemaFormulas::in_place(Subschema here) {
  std::vector<FormulaId> parts;
  for (const SchemaNode target : references(here)) {
    parts.push_back(schema(target, here.scope));
  }
  if (keywords_.is_older(here.node, SchemaDraft::k2019) &&
      keywords_.find(here.node, "$ref") != nullptr) {
    return formulas_.all_of(parts);
  }
  for (size_t i = 0; i < keywords_.list_size(here.node, "allOf"); ++i) {
    parts.push_back(below(here, "allOf", i));
  }
  if (const size_t size = keywords_.list_size(here.node, "anyOf")) {
    parts.push_back(Choices(*this).any_of(here, size));
  }
  if (const size_t size = keywords_.list_size(here.node, "oneOf")) {
    parts.push_back(Choices(*this).one_of(here, size));
  }
  if (keywords_.find(here.node, "not") != nullptr) {
    parts.push_back(formulas_.negate(below(here, "not")));
  }
  if (keywords_.find(here.node, "if") != nullptr &&
      !keywords_.is_older(here.node, SchemaDraft::kDraft7)) {
    const FormulaId condition = below(here, "if");
    const FormulaId then =
        keywords_.find(here.node, "then") == nullptr ? FormulaStore::kTrue : below(here, "then");
    const FormulaId otherwise =
        keywords_.find(here.node, "else") == nullptr ? FormulaStore::kTrue : below(here, "else");
    parts.push_back(formulas_.any_of({formulas_.all_of({condition, then}),
                                      formulas_.all_of({formulas_.negate(condition), otherwise})}));
  }
  add_dependencies(here, parts);
  return formulas_.all_of(parts);
}

FormulaId SchemaFormulas::expand_for_text(const Atom& atom) {
  const Subschema here{atom.a, atom.b};
  std::vector<FormulaId> parts = {in_place(here)};
  const bool only_reference = keywords_.is_older(here.node, SchemaDraft::k2019) &&
                              keywords_.find(here.node, "$ref") != nullptr;
  if (!only_reference) {
    assertions_.add_all(here.node, parts);
  }
  const FormulaId formula = formulas_.all_of(parts);
  return atom.kind == AtomKind::kSchema ? formula : formulas_.negate(formula);
}

RegexId SchemaFormulas::text_language(FormulaId formula) {
  if (const auto found = languages_.find(formula); found != languages_.end()) {
    return found->second;
  }
  RegexStore& regexes = formulas_.regexes();
  RegexId result = formula == FormulaStore::kFalse ? RegexStore::kNothing : RegexStore::kAll;
  if (formulas_.kind(formula) == FormulaStore::Kind::kAtom) {
    const Atom& atom = formulas_.atom_of(formula);
    if (atom.kind == AtomKind::kText) {
      result = atom.a;
    } else if (atom.kind == AtomKind::kTypes) {
      result = (atom.a & type_bit(Type::kString)) != 0 ? RegexStore::kAll : RegexStore::kNothing;
    } else if (atom.kind == AtomKind::kLength) {
      result =
          atom.min > atom.max
              ? RegexStore::kNothing
              : regexes.repeat(regexes.one_of(CodePoints::all()), atom.min,
                               atom.max == kUnbounded ? std::nullopt : std::optional(atom.max));
    } else if (atom.is_schema()) {
      const Opened opened(open_, {atom.a, atom.b}, document_.location(atom.a));
      result = text_language(expand_for_text(atom));
    }
  } else if (formulas_.kind(formula) != FormulaStore::Kind::kConstant) {
    std::vector<RegexId> parts;
    const std::vector<FormulaId>& inner = formulas_.parts(formula);
    for (const FormulaId part : inner) {
      parts.push_back(text_language(part));
    }
    result = formulas_.kind(formula) == FormulaStore::Kind::kAll ? regexes.all_of(parts)
                                                                 : regexes.any_of(parts);
  }
  languages_[formula] = result;
  return result;
}

}  // namespace specdec
