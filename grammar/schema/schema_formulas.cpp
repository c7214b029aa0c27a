#include "grammar/schema/schema_formulas.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "grammar/regex/regex_parser.h"
#include "grammar/regex/string_format.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

constexpr uint64_t kMaxText = 4'000'000;  ///< bytes of all strings of one enum or const

uint64_t text_size(const JsonValue& value) {
  uint64_t size = value.is(Type::kString) ? value.text.size() : 0;
  for (const JsonValue& item : value.items) {
    size += text_size(item);
  }
  for (const JsonMember& member : value.members) {
    size += member.name.size() + text_size(member.value);
  }
  return size;
}

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
      formulas_(formulas),
      options_(options),
      scopes_{{}},
      scope_ids_{{{}, 0}} {}

FormulaId SchemaFormulas::root() { return schema(document_.root(), 0); }

const JsonValue* SchemaFormulas::keyword(Place place, std::string_view name) const {
  return document_.value(place.node).find(name);
}

void SchemaFormulas::fail(Place place, std::string_view keyword, const std::string& what) const {
  throw GrammarError(fmt::format("{}/{}: {}", document_.location(place.node), keyword, what));
}

FormulaId SchemaFormulas::schema(SchemaNode node, uint32_t scope) {
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

FormulaId SchemaFormulas::below(Place place, std::string_view keyword) {
  return schema(document_.child(place.node, keyword), place.scope);
}

FormulaId SchemaFormulas::below(Place place, std::string_view keyword, size_t index) {
  return schema(document_.child(place.node, keyword, index), place.scope);
}

FormulaId SchemaFormulas::below(Place place, std::string_view keyword, const JsonMember& part) {
  return schema(document_.child(place.node, keyword, part), place.scope);
}

uint64_t SchemaFormulas::count(Place place, std::string_view name, uint64_t missing) const {
  const JsonValue* value = keyword(place, name);
  if (value == nullptr) {
    return missing;
  }
  if (!value->is(Type::kNumber)) {
    fail(place, name, "must be a whole number, zero or more");
  }
  const Decimal number = parse_decimal(value->text);
  if (sgn(number.digits) < 0 || number.exponent < 0) {
    fail(place, name, "must be a whole number, zero or more");
  }
  if (compare(number, {mpz_class(1), 18}) >= 0) {
    return kUnbounded - 1;
  }
  const mpq_class whole = to_fraction(number);
  return mpz_class(whole.get_num()).get_ui();
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

FormulaId SchemaFormulas::expand_node(Place place) {
  const JsonValue& value = document_.value(place.node);
  if (value.is_boolean()) {
    return value.is(Type::kTrue) ? FormulaStore::kTrue : FormulaStore::kFalse;
  }
  if (has_unevaluated(place)) {
    std::vector<FormulaId> parts;
    for (const Branch& branch : branches(place)) {
      parts.push_back(branch.formula);
    }
    return formulas_.any_of(parts);
  }
  return formulas_.all_of({local(place), in_place(place)});
}

FormulaId SchemaFormulas::local(Place place) {
  std::vector<FormulaId> parts;
  if (is_older(place, SchemaDraft::k2019) && keyword(place, "$ref") != nullptr) {
    return FormulaStore::kTrue;  // its neighbours do not count
  }
  if (document_.has_assertions(place.node)) {
    add_any_type(place, parts);
    add_numbers(place, parts);
    add_strings(place, parts);
  }
  add_format(place, parts);
  add_arrays(place, parts);
  add_objects(place, parts);
  return formulas_.all_of(parts);
}

TypeMask SchemaFormulas::type_named(Place place, const JsonValue& name, bool& integer) const {
  if (name.text == "boolean") {
    return type_bit(Type::kFalse) | type_bit(Type::kTrue);
  }
  constexpr std::array kNames = {std::pair("null", Type::kNull), std::pair("number", Type::kNumber),
                                 std::pair("string", Type::kString),
                                 std::pair("array", Type::kArray),
                                 std::pair("object", Type::kObject)};
  for (const auto& [known, type] : kNames) {
    if (name.text == known) {
      return type_bit(type);
    }
  }
  if (name.text != "integer") {
    fail(place, "type",
         fmt::format("{} is no type; known: null, boolean, integer, number, string, array, object",
                     to_json(name)));
  }
  integer = true;
  return 0;
}

void SchemaFormulas::add_any_type(Place place, std::vector<FormulaId>& parts) {
  if (const JsonValue* type = keyword(place, "type")) {
    bool integer = false;
    TypeMask mask = 0;
    if (type->is(Type::kArray)) {
      for (const JsonValue& name : type->items) {
        mask |= type_named(place, name, integer);
      }
    } else {
      mask = type_named(place, *type, integer);
    }
    FormulaId formula = formulas_.types(mask);
    if (integer && (mask & type_bit(Type::kNumber)) == 0) {
      const bool written = is_older(place, SchemaDraft::kDraft6);  // draft 4, section 3.5
      const FormulaId whole = formulas_.all_of(
          {formulas_.only(Type::kNumber),
           written ? formulas_.written_whole() : formulas_.multiple({mpz_class(1), 0})});
      formula = formulas_.any_of({formula, whole});
    }
    parts.push_back(formula);
  }
  if (const JsonValue* values = keyword(place, "enum")) {
    if (!values->is(Type::kArray)) {
      fail(place, "enum", "must be a list of values");
    }
    check_text(place, "enum", *values);
    check_numbers(place, "enum", *values);
    parts.push_back(formulas_.equals_any(values->items));
  }
  if (const JsonValue* value = keyword(place, "const");
      value != nullptr && !is_older(place, SchemaDraft::kDraft6)) {
    check_text(place, "const", *value);
    check_numbers(place, "const", *value);
    parts.push_back(formulas_.equals(*value));
  }
}

void SchemaFormulas::check_text(Place place, std::string_view keyword,
                                const JsonValue& value) const {
  if (const uint64_t size = text_size(value); size > kMaxText) {
    fail(place, keyword,
         fmt::format("its strings have {} bytes; at most {} can be told apart", size, kMaxText));
  }
}

void SchemaFormulas::check_numbers(Place place, std::string_view keyword,
                                   const JsonValue& value) const {
  if (value.is(Type::kNumber)) {
    try {
      (void)to_fraction(parse_decimal(value.text));
    } catch (const GrammarError& error) {
      fail(place, keyword, error.what());
    }
  }
  for (const JsonValue& item : value.items) {
    check_numbers(place, keyword, item);
  }
  for (const JsonMember& member : value.members) {
    check_numbers(place, keyword, member.value);
  }
}

void SchemaFormulas::add_numbers(Place place, std::vector<FormulaId>& parts) {
  const auto number = [&](std::string_view name) {
    const JsonValue* value = keyword(place, name);
    if (value != nullptr && !value->is(Type::kNumber)) {
      fail(place, name, "must be a number");
    }
    if (value == nullptr) {
      return std::optional<Decimal>();
    }
    check_numbers(place, name, *value);
    return std::optional(parse_decimal(value->text));
  };
  const auto bound = [&](std::string_view name, std::string_view exclusive, bool lower) {
    const JsonValue* open = keyword(place, exclusive);
    const bool old = open != nullptr && open->is_boolean();  // draft 4's way
    if (const auto limit = number(name)) {
      const bool strict = old && open->is(Type::kTrue);
      parts.push_back(lower ? formulas_.range(&*limit, strict, nullptr, false)
                            : formulas_.range(nullptr, false, &*limit, strict));
    }
    if (open != nullptr && !old) {
      const Decimal limit = *number(exclusive);
      parts.push_back(lower ? formulas_.range(&limit, true, nullptr, false)
                            : formulas_.range(nullptr, false, &limit, true));
    }
  };
  bound("minimum", "exclusiveMinimum", true);
  bound("maximum", "exclusiveMaximum", false);
  if (const auto unit = number("multipleOf")) {
    if (sgn(unit->digits) <= 0) {
      fail(place, "multipleOf", "must be greater than zero");
    }
    parts.push_back(formulas_.multiple(*unit));
  }
}

RegexId SchemaFormulas::pattern(Place place, std::string_view keyword, const std::string& text) {
  RegexStore& regexes = formulas_.regexes();
  try {
    return regexes.named("pattern " + text, [&] { return parse_regex(regexes, text, true); });
  } catch (const GrammarError& error) {
    fail(place, keyword, error.what());
  }
}

void SchemaFormulas::add_strings(Place place, std::vector<FormulaId>& parts) {
  parts.push_back(formulas_.atom({.kind = AtomKind::kLength,
                                  .min = count(place, "minLength", 0),
                                  .max = count(place, "maxLength", kUnbounded)}));
  if (const JsonValue* value = keyword(place, "pattern")) {
    if (!value->is(Type::kString)) {
      fail(place, "pattern", "must be a string");
    }
    parts.push_back(
        formulas_.atom({.kind = AtomKind::kText, .a = pattern(place, "pattern", value->text)}));
  }
}

void SchemaFormulas::add_format(Place place, std::vector<FormulaId>& parts) {
  const JsonValue* format = keyword(place, "format");
  const bool asserted = options_.assert_formats || document_.asserts_formats(place.node);
  if (format == nullptr || !asserted || !format->is(Type::kString)) {
    return;
  }
  try {
    if (const auto language = string_format(formulas_.regexes(), format->text)) {
      parts.push_back(formulas_.atom({.kind = AtomKind::kText, .a = *language}));
    }
  } catch (const GrammarError& error) {
    fail(place, "format", error.what());
  }
}

size_t SchemaFormulas::list_size(Place place, std::string_view name) const {
  const JsonValue* value = keyword(place, name);
  if (value == nullptr) {
    return 0;
  }
  if (!value->is(Type::kArray)) {
    fail(place, name, "must be a list of schemas");
  }
  return value->items.size();
}

void SchemaFormulas::add_items(Place place, std::vector<FormulaId>& parts) {
  const JsonValue* items = keyword(place, "items");
  const bool old = items != nullptr && items->is(Type::kArray);
  const std::string_view prefix = old ? "items" : "prefixItems";
  const bool has_prefix = old || !is_older(place, SchemaDraft::k2020);
  const size_t size = has_prefix ? list_size(place, prefix) : 0;
  for (size_t i = 0; i < size; ++i) {
    parts.push_back(
        formulas_.atom({.kind = AtomKind::kItem, .min = i, .formula = below(place, prefix, i)}));
  }
  const std::string_view rest = old ? "additionalItems" : "items";
  if (keyword(place, rest) != nullptr) {
    parts.push_back(
        formulas_.atom({.kind = AtomKind::kItems, .min = size, .formula = below(place, rest)}));
  }
}

void SchemaFormulas::add_arrays(Place place, std::vector<FormulaId>& parts) {
  add_items(place, parts);
  const bool counted = document_.has_assertions(place.node);
  if (keyword(place, "contains") != nullptr && !is_older(place, SchemaDraft::kDraft6)) {
    const bool limits = counted && !is_older(place, SchemaDraft::k2019);
    parts.push_back(
        formulas_.atom({.kind = AtomKind::kContains,
                        .min = limits ? count(place, "minContains", 1) : 1,
                        .max = limits ? count(place, "maxContains", kUnbounded) : kUnbounded,
                        .formula = below(place, "contains")}));
  }
  if (!counted) {
    return;
  }
  parts.push_back(formulas_.atom({.kind = AtomKind::kItemCount,
                                  .min = count(place, "minItems", 0),
                                  .max = count(place, "maxItems", kUnbounded)}));
  if (const JsonValue* unique = keyword(place, "uniqueItems")) {
    if (!unique->is_boolean()) {
      fail(place, "uniqueItems", "must be true or false");
    }
    if (unique->is(Type::kTrue)) {
      parts.push_back(formulas_.atom({.kind = AtomKind::kUnique, .a = place.node}));
    }
  }
}

KeySet SchemaFormulas::others(const std::vector<NameId>& names,
                              const std::vector<RegexId>& patterns) {
  RegexStore& regexes = formulas_.regexes();
  return {regexes.complement(regexes.any_of(patterns)), names, 0};
}

void SchemaFormulas::add_properties(Place place, std::vector<FormulaId>& parts) {
  const auto members = [&](std::string_view name) -> const std::vector<JsonMember>& {
    static const std::vector<JsonMember> kNone;
    const JsonValue* value = keyword(place, name);
    if (value != nullptr && !value->is(Type::kObject)) {
      fail(place, name, "must be an object of schemas");
    }
    return value == nullptr ? kNone : value->members;
  };
  std::vector<NameId> names;
  for (const JsonMember& member : members("properties")) {
    names.push_back(formulas_.name(member.name));
    parts.push_back(formulas_.properties(formulas_.one_name(names.back()),
                                         below(place, "properties", member), next_rank_++));
  }
  std::vector<RegexId> patterns;
  for (const JsonMember& member : members("patternProperties")) {
    patterns.push_back(pattern(place, "patternProperties", member.name));
    parts.push_back(
        formulas_.properties({patterns.back(), {}, 0}, below(place, "patternProperties", member)));
  }
  if (keyword(place, "additionalProperties") != nullptr) {
    parts.push_back(
        formulas_.properties(others(names, patterns), below(place, "additionalProperties")));
  }
  if (keyword(place, "propertyNames") != nullptr && !is_older(place, SchemaDraft::kDraft6)) {
    const RegexId allowed = text_language(below(place, "propertyNames"));
    parts.push_back(formulas_.properties({formulas_.regexes().complement(allowed), {}, 0},
                                         FormulaStore::kFalse));
  }
}

FormulaId SchemaFormulas::if_present(NameId name, FormulaId then) {
  return formulas_.any_of({formulas_.types(kAllTypes & ~type_bit(Type::kObject)),
                           formulas_.properties(formulas_.one_name(name), FormulaStore::kFalse),
                           then});
}

void SchemaFormulas::add_dependencies(Place place, std::vector<FormulaId>& parts) {
  for (const std::string_view name : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const JsonValue* value = keyword(place, name);
    const bool newer = name != "dependencies" && is_older(place, SchemaDraft::k2019);
    if (value == nullptr || newer) {
      continue;
    }
    if (!value->is(Type::kObject)) {
      fail(place, name, "must be an object");
    }
    for (const JsonMember& member : value->members) {
      const auto& [key, dependency] = member;
      if (!dependency.is(Type::kArray)) {
        parts.push_back(if_present(formulas_.name(key), below(place, name, member)));
        continue;
      }
      std::vector<FormulaId> needed;
      for (const JsonValue& other : dependency.items) {
        needed.push_back(formulas_.required(formulas_.name(other.text)));
      }
      parts.push_back(if_present(formulas_.name(key), formulas_.all_of(std::move(needed))));
    }
  }
}

void SchemaFormulas::add_objects(Place place, std::vector<FormulaId>& parts) {
  add_properties(place, parts);
  if (!document_.has_assertions(place.node)) {
    return;
  }
  if (const JsonValue* required = keyword(place, "required")) {
    if (!required->is(Type::kArray)) {
      fail(place, "required", "must be a list of names");
    }
    for (const JsonValue& name : required->items) {
      if (!name.is(Type::kString)) {
        fail(place, "required", "must be a list of names");
      }
      parts.push_back(formulas_.required(formulas_.name(name.text)));
    }
  }
  parts.push_back(formulas_.atom({.kind = AtomKind::kPropertyCount,
                                  .min = count(place, "minProperties", 0),
                                  .max = count(place, "maxProperties", kUnbounded)}));
}

FormulaId SchemaFormulas::one_of(Place place, size_t size) {
  std::vector<FormulaId> choices;
  for (size_t i = 0; i < size; ++i) {
    std::vector<FormulaId> parts;
    for (size_t j = 0; j < size; ++j) {
      const FormulaId part = below(place, "oneOf", j);
      parts.push_back(i == j ? part : formulas_.negate(part));
    }
    choices.push_back(formulas_.all_of(parts));
  }
  return formulas_.any_of(std::move(choices));
}

std::vector<SchemaNode> SchemaFormulas::references(Place place) {
  std::vector<SchemaNode> targets;
  const auto text = [&](std::string_view name) -> const JsonValue* {
    const JsonValue* value = keyword(place, name);
    if (value != nullptr && !value->is(Type::kString)) {
      fail(place, name, "must be a string");
    }
    return value;
  };
  if (const JsonValue* reference = text("$ref")) {
    targets.push_back(document_.resolve(place.node, reference->text));
  }
  if (document_.draft(place.node) == SchemaDraft::k2020) {
    if (const JsonValue* reference = text("$dynamicRef")) {
      targets.push_back(
          document_.resolve_dynamic(place.node, reference->text, scopes_[place.scope]));
    }
  }
  if (document_.draft(place.node) == SchemaDraft::k2019 && text("$recursiveRef") != nullptr) {
    targets.push_back(document_.resolve_recursive(place.node, scopes_[place.scope]));
  }
  return targets;
}

FormulaId SchemaFormulas::in_place(Place place) {
  std::vector<FormulaId> parts;
  for (const SchemaNode target : references(place)) {
    parts.push_back(schema(target, place.scope));
  }
  if (is_older(place, SchemaDraft::k2019) && keyword(place, "$ref") != nullptr) {
    return formulas_.all_of(parts);
  }
  for (size_t i = 0; i < list_size(place, "allOf"); ++i) {
    parts.push_back(below(place, "allOf", i));
  }
  if (const size_t size = list_size(place, "anyOf")) {
    std::vector<FormulaId> choices;
    for (size_t i = 0; i < size; ++i) {
      choices.push_back(below(place, "anyOf", i));
    }
    parts.push_back(formulas_.any_of(std::move(choices)));
  }
  if (const size_t size = list_size(place, "oneOf")) {
    parts.push_back(one_of(place, size));
  }
  if (keyword(place, "not") != nullptr) {
    parts.push_back(formulas_.negate(below(place, "not")));
  }
  if (keyword(place, "if") != nullptr && !is_older(place, SchemaDraft::kDraft7)) {
    const FormulaId condition = below(place, "if");
    const FormulaId then =
        keyword(place, "then") == nullptr ? FormulaStore::kTrue : below(place, "then");
    const FormulaId otherwise =
        keyword(place, "else") == nullptr ? FormulaStore::kTrue : below(place, "else");
    parts.push_back(formulas_.any_of({formulas_.all_of({condition, then}),
                                      formulas_.all_of({formulas_.negate(condition), otherwise})}));
  }
  add_dependencies(place, parts);
  return formulas_.all_of(parts);
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
      result = text_language(expand(atom));
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
