#include "grammar/schema/schema_keywords.h"

#include "core/error.h"
#include "grammar/interruption.h"
#include "grammar/numbers/decimal.h"
#include "grammar/schema/formula.h"

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

}  // namespace

const JsonValue* SchemaKeywords::find(SchemaNode node, std::string_view name) const {
  return document_.value(node).find(name);
}

void SchemaKeywords::fail(SchemaNode node, std::string_view keyword,
                          const std::string& what) const {
  throw GrammarError(fmt::format("{}/{}: {}", document_.location(node), keyword, what));
}

uint64_t SchemaKeywords::count(SchemaNode node, std::string_view name, uint64_t missing) const {
  const JsonValue* value = find(node, name);
  if (value == nullptr) {
    return missing;
  }
  if (!value->is(Type::kNumber)) {
    fail(node, name, "must be a whole number, zero or more");
  }
  const Decimal number = parse_decimal(value->text);
  if (sgn(number.digits) < 0 || number.exponent < 0) {
    fail(node, name, "must be a whole number, zero or more");
  }
  if (compare(number, {mpz_class(1), 18}) >= 0) {
    return kUnbounded - 1;
  }
  const mpq_class whole = to_fraction(number);
  return mpz_class(whole.get_num()).get_ui();
}

size_t SchemaKeywords::list_size(SchemaNode node, std::string_view name) const {
  const JsonValue* value = find(node, name);
  if (value == nullptr) {
    return 0;
  }
  if (!value->is(Type::kArray)) {
    fail(node, name, "must be a list of schemas");
  }
  return value->items.size();
}

void SchemaKeywords::check_text(SchemaNode node, std::string_view keyword,
                                const JsonValue& value) const {
  if (const uint64_t size = text_size(value); size > kMaxText) {
    fail(node, keyword,
         fmt::format("its strings have {} bytes; at most {} can be told apart", size, kMaxText));
  }
}

uint64_t SchemaKeywords::size_of(const JsonValue& value) {
  uint64_t size = 1 + value.text.size();
  for (const JsonValue& item : value.items) {
    size += size_of(item);
  }
  for (const JsonMember& member : value.members) {
    size += member.name.size() + size_of(member.value);
  }
  return size;
}

void SchemaKeywords::check_numbers(SchemaNode node, std::string_view keyword,
                                   const JsonValue& value) const {
  Interruption::check();
  if (value.is(Type::kNumber)) {
    try {
      (void)to_fraction(parse_decimal(value.text));
    } catch (const GrammarError& error) {
      fail(node, keyword, error.what());
    }
  }
  for (const JsonValue& item : value.items) {
    check_numbers(node, keyword, item);
  }
  for (const JsonMember& member : value.members) {
    check_numbers(node, keyword, member.value);
  }
}

}  // namespace specdec
