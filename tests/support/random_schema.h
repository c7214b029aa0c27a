#pragma once
#include <random>
#include <string>

#include "grammar/schema/json_value.h"

namespace specdec {

/// Random schemas and values over few names and leaves, so that they meet often.
class RandomSchema {
 public:
  explicit RandomSchema(uint32_t seed) : random_(seed) {}

  /// A schema of the keywords that NaiveValidator knows, with a subschema "#/$defs/d".
  JsonValue schema(int depth);
  JsonValue value(int depth);
  /// The value with one part replaced, added, doubled or taken out.
  JsonValue mutated(JsonValue value);

 private:
  static constexpr uint32_t kKinds = 6;

  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  std::string name();
  std::string pattern();
  JsonValue number_between(int low, int high);
  /// A subschema; with `apart`, of another value than the one around it, so that it may refer back.
  JsonValue subschema(int depth, bool apart);
  JsonValue subschemas(int depth, uint32_t count, bool apart);
  void add(JsonValue& schema, const std::string& keyword, JsonValue value);
  void maybe(JsonValue& schema, uint32_t percent, const std::string& keyword, int low, int high);
  void add_types(JsonValue& schema, int depth);
  void add_numbers(JsonValue& schema);
  void add_strings(JsonValue& schema);
  void add_arrays(JsonValue& schema, int depth);
  void add_objects(JsonValue& schema, int depth);
  void add_names(JsonValue& schema, int depth);
  void add_combined(JsonValue& schema, int depth);

  std::mt19937 random_;
};

}  // namespace specdec
