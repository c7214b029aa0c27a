#include "grammar/schema/schema_assertions.h"

#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "grammar/regex/regex_parser.h"
#include "grammar/regex/string_format.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

}  // namespace

void SchemaAssertions::add_all(SchemaNode node, std::vector<FormulaId>& parts) {
  if (document_.has_assertions(node)) {
    add_any_type(node, parts);
    add_numbers(node, parts);
    add_strings(node, parts);
  }
  add_format(node, parts);
}

TypeMask SchemaAssertions::type_named(SchemaNode node, const JsonValue& name, bool& integer) const {
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
    keywords_.fail(
        node, "type",
        fmt::format("{} is no type; known: null, boolean, integer, number, string, array, object",
                    to_json(name)));
  }
  integer = true;
  return 0;
}

void SchemaAssertions::add_any_type(SchemaNode node, std::vector<FormulaId>& parts) {
  if (const JsonValue* type = keywords_.find(node, "type")) {
    bool integer = false;
    TypeMask mask = 0;
    if (type->is(Type::kArray)) {
      for (const JsonValue& name : type->items) {
        mask |= type_named(node, name, integer);
      }
    } else {
      mask = type_named(node, *type, integer);
    }
    FormulaId formula = formulas_.types(mask);
    if (integer && (mask & type_bit(Type::kNumber)) == 0) {
      const bool written = keywords_.is_older(node, SchemaDraft::kDraft6);  // draft 4, section 3.5
      const FormulaId whole = formulas_.all_of(
          {formulas_.only(Type::kNumber),
           written ? formulas_.written_whole() : formulas_.multiple({mpz_class(1), 0})});
      formula = formulas_.any_of({formula, whole});
    }
    parts.push_back(formula);
  }
  if (const JsonValue* values = keywords_.find(node, "enum")) {
    if (!values->is(Type::kArray)) {
      keywords_.fail(node, "enum", "must be a list of values");
    }
    keywords_.check_text(node, "enum", *values);
    keywords_.check_numbers(node, "enum", *values);
    parts.push_back(formulas_.equals_any(values->items));
  }
  if (const JsonValue* value = keywords_.find(node, "const");
      value != nullptr && !keywords_.is_older(node, SchemaDraft::kDraft6)) {
    keywords_.check_text(node, "const", *value);
    keywords_.check_numbers(node, "const", *value);
    parts.push_back(formulas_.equals(*value));
  }
}

void SchemaAssertions::add_numbers(SchemaNode node, std::vector<FormulaId>& parts) {
  const auto number = [&](std::string_view name) {
    const JsonValue* value = keywords_.find(node, name);
    if (value != nullptr && !value->is(Type::kNumber)) {
      keywords_.fail(node, name, "must be a number");
    }
    if (value == nullptr) {
      return std::optional<Decimal>();
    }
    keywords_.check_numbers(node, name, *value);
    return std::optional(parse_decimal(value->text));
  };
  const auto bound = [&](std::string_view name, std::string_view exclusive, bool lower) {
    const JsonValue* open = keywords_.find(node, exclusive);
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
      keywords_.fail(node, "multipleOf", "must be greater than zero");
    }
    parts.push_back(formulas_.multiple(*unit));
  }
}

RegexId SchemaAssertions::pattern(SchemaNode node, std::string_view keyword,
                                  const std::string& text) const {
  RegexStore& regexes = formulas_.regexes();
  try {
    return regexes.named("pattern " + text, [&] { return parse_regex(regexes, text, true); });
  } catch (const GrammarError& error) {
    keywords_.fail(node, keyword, error.what());
  }
}

void SchemaAssertions::add_strings(SchemaNode node, std::vector<FormulaId>& parts) {
  parts.push_back(formulas_.atom({.kind = AtomKind::kLength,
                                  .min = keywords_.count(node, "minLength", 0),
                                  .max = keywords_.count(node, "maxLength", kUnbounded)}));
  if (const JsonValue* value = keywords_.find(node, "pattern")) {
    if (!value->is(Type::kString)) {
      keywords_.fail(node, "pattern", "must be a string");
    }
    parts.push_back(
        formulas_.atom({.kind = AtomKind::kText, .a = pattern(node, "pattern", value->text)}));
  }
}

void SchemaAssertions::add_format(SchemaNode node, std::vector<FormulaId>& parts) {
  const JsonValue* format = keywords_.find(node, "format");
  const bool asserted = assert_formats_ || document_.asserts_formats(node);
  if (format != nullptr && !format->is(Type::kString)) {
    keywords_.fail(node, "format", "must be a string");
  }
  if (format == nullptr || !asserted) {
    return;
  }
  try {
    if (const auto language = string_format(formulas_.regexes(), format->text)) {
      parts.push_back(formulas_.atom({.kind = AtomKind::kText, .a = *language}));
    }
  } catch (const GrammarError& error) {
    keywords_.fail(node, "format", error.what());
  }
}

}  // namespace specdec
