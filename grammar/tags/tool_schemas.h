#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/schema/json_value.h"
#include "grammar/tags/tool_calls.h"

namespace specdec {

/// The schemas of a tool's parameters, as notations other than JSON read them. Throws GrammarError
/// with the pointer of what they cannot enforce.
class ToolSchemas {
 public:
  /// A name that is written, with the schema of its values and where that stands.
  struct Property {
    std::string name;
    const JsonValue* schema;
    std::string pointer;
    bool required;
  };

  /// Borrows the first two. `place`: of the root, for errors.
  ToolSchemas(const ToolCallStyle& style, const JsonValue& root, std::string place)
      : style_(style), root_(root), place_(std::move(place)) {}

  const JsonValue& root() const { return root_; }
  const std::string& place() const { return place_; }
  [[noreturn]] void fail(const std::string& pointer, const std::string& what) const;
  /// Refuses keywords that are not known, but for those that restrict no value of the type.
  void check_keywords(const JsonValue& schema, const std::set<std::string_view>& known,
                      const std::string& pointer, std::string_view type = "") const;
  /// What a $ref within the parameters means, which stands `depth` values deep.
  const JsonValue& resolved(const JsonValue& schema, const std::string& pointer, int depth) const;
  /// True where a schema, or each part of its allOf, has the type object.
  bool is_object(const JsonValue& schema, const std::string& pointer, int depth) const;
  /// Properties of an object: those listed in `properties`, also in those of the parts of its
  /// allOf, and the required ones that `additionalProperties` describes. Nothing for an object
  /// whose names are free: none of these says which there are.
  std::optional<std::vector<Property>> properties(const JsonValue& schema,
                                                  const std::string& pointer) const;

 private:
  struct Object {
    std::vector<Property> properties = {};
    std::set<std::string_view> names = {};
    std::vector<const JsonValue*> required = {};
    const JsonValue* others = nullptr;  ///< additionalProperties other than true
    std::string others_pointer = {};
    int schemas = 0;
    bool lists = false;  ///< has `properties`
  };

  void collect(const JsonValue& schema, const std::string& pointer, int depth,
               Object& object) const;
  void add_properties(const JsonValue& listed, const std::string& pointer, Object& object) const;
  void add_required(const JsonValue& name, const std::string& pointer, Object& object) const;

  const ToolCallStyle& style_;
  const JsonValue& root_;
  std::string place_;
  mutable std::map<const JsonValue*, bool> objects_ = {};  ///< answers of is_object
};

}  // namespace specdec
