#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema/schema_formulas.h"

namespace specdec {

/// What is seen of subschemas at a glance, before any formula: their types, constants and patterns.
/// Enough to tell most alternatives of a oneOf apart, however many there are.
class SchemaFormulas::DisjointnessCheck {
 public:
  /// Borrows the formulas.
  explicit DisjointnessCheck(SchemaFormulas& schemas) : schemas_(schemas) {}

  /// For each part of the oneOf the others with which it may share a value.
  std::vector<std::vector<size_t>> overlaps_of_one_of(Subschema here, size_t size);

 private:
  static constexpr uint64_t kMaxPatternSteps = 10'000'000;  ///< to tell patterns apart
  using Constants = std::set<std::string>;                  ///< canonical texts
  /// What a value is.
  struct Told {
    std::optional<Constants> values;  ///< one of these
    std::optional<RegexId> language;  ///< a string of it
  };
  struct Seen {
    TypeMask types = kAllTypes;
    Told told;
    /// Those of objects, by their pointers; those below others that must be objects too.
    std::map<std::string, Told> properties;
    std::set<std::string> required;  ///< pointers, likewise
  };

  const Seen& look(Subschema here, int depth);
  Seen look_inside(Subschema here, int depth);
  void add_types(SchemaNode node, Seen& seen) const;
  void add_values(SchemaNode node, Seen& seen) const;
  void add_required(SchemaNode node, Seen& seen) const;
  void add_properties(Subschema here, Seen& seen, int depth);
  void add_property(Subschema value, const std::string& pointer, Seen& seen, int depth);
  void add_optional(SchemaNode value, const std::string& pointer, Seen& seen);
  void add_pattern(SchemaNode node, Seen& seen) const;
  void merge(Told& told, const Told& more);
  void merge(Seen& seen, const Seen& more);
  bool is_apart(const Told& a, const Told& b);
  bool is_apart(const Seen& a, const Seen& b);
  static void drop_optional(Seen& seen);
  static std::string best_property(const std::vector<Seen>& all);

  SchemaFormulas& schemas_;
  std::map<std::pair<SchemaNode, int>, Seen> known_;  ///< by depth, all in one scope
  uint64_t looks_ = 0;                                ///< and what was merged
  uint64_t steps_left_ = kMaxPatternSteps;
};

}  // namespace specdec
