#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

struct JsonMember;

/// A JSON document that keeps what a schema needs: the source digits of numbers (1.0, 1e400) and
/// the order of an object's members.
struct JsonValue {
  enum class Type { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

  Type type = Type::kNull;
  std::string text;  ///< kNumber: its source digits; kString: its UTF-8, unescaped
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;

  bool is(Type wanted) const { return type == wanted; }
  bool is_boolean() const { return type == Type::kTrue || type == Type::kFalse; }
  /// The member of that name, or nullptr (also when this is no object).
  const JsonValue* find(std::string_view name) const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

/// Reads a whole text. Throws GrammarError "where:line:column: ..." when it is not JSON (RFC 8259)
/// or not UTF-8, names a member twice, has half a surrogate pair, or nests deeper than 1,000.
JsonValue parse_json(std::string_view text, std::string_view where);

/// Compact text (no white space, everything but controls, `"` and `\` as it is).
std::string to_json(const JsonValue& value);
std::string to_json_string(std::string_view utf8);

}  // namespace specdec
