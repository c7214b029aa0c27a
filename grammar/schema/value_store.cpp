#include "grammar/schema/value_store.h"

#include <gmpxx.h>

#include <algorithm>

namespace specdec {

std::string canonical_number(std::string_view text) {
  const size_t letter = std::min(text.find_first_of("eE"), text.size());
  std::string_view mantissa = text.substr(0, letter);
  std::string_view power = text.substr(std::min(letter + 1, text.size()));
  power.remove_prefix(power.starts_with('+') ? 1 : 0);
  const bool negative = mantissa.starts_with('-');
  mantissa.remove_prefix(negative ? 1 : 0);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  const std::string_view fraction = mantissa.substr(std::min(point + 1, mantissa.size()));
  digits += fraction;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) {
    return "0";
  }
  mpz_class exponent = power.empty() ? mpz_class(0) : mpz_class(std::string(power), 10);
  exponent -= mpz_class(fraction.size());
  const size_t kept = digits.find_last_not_of('0') + 1;
  exponent += mpz_class(digits.size() - kept);
  digits.resize(kept);
  return (negative ? "-" : "") + digits + "e" + exponent.get_str();
}

JsonValue canonical_value(JsonValue value) {
  if (value.is(JsonValue::Type::kNumber)) {
    value.text = canonical_number(value.text);
  }
  for (JsonValue& item : value.items) {
    item = canonical_value(std::move(item));
  }
  for (JsonMember& member : value.members) {
    member.value = canonical_value(std::move(member.value));
  }
  std::ranges::sort(value.members, {}, &JsonMember::name);
  return value;
}

ValueId ValueStore::add(const JsonValue& value) {
  JsonValue canonical = canonical_value(value);
  const auto [entry, fresh] =
      ids_.emplace(to_json(canonical), static_cast<ValueId>(values_.size()));
  if (fresh) {
    values_.push_back(std::move(canonical));
  }
  return entry->second;
}

}  // namespace specdec
