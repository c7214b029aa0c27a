#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/schema/schema_document.h"

namespace specdec {

/// The keywords of a document's subschemas, read by type: a mistake is a GrammarError that names
/// the keyword and its JSON pointer.
class SchemaKeywords {
 public:
  /// Borrows it.
  explicit SchemaKeywords(const SchemaDocument& document) : document_(document) {}

  /// The value of a keyword; nullptr when the subschema has none.
  const JsonValue* find(SchemaNode node, std::string_view name) const;
  [[noreturn]] void fail(SchemaNode node, std::string_view keyword, const std::string& what) const;
  /// A whole number, zero or more; `missing` where it is not given.
  uint64_t count(SchemaNode node, std::string_view name, uint64_t missing) const;
  /// Length of a list of schemas; 0 where it is not given.
  size_t list_size(SchemaNode node, std::string_view name) const;
  /// Size of a value: one for each part, and the bytes of its texts.
  static uint64_t size_of(const JsonValue& value);
  /// Fails when the value's strings are too many or too long.
  void check_text(SchemaNode node, std::string_view keyword, const JsonValue& value) const;
  /// Fails when the value holds a number beyond what to_fraction takes.
  void check_numbers(SchemaNode node, std::string_view keyword, const JsonValue& value) const;
  bool is_older(SchemaNode node, SchemaDraft draft) const { return document_.draft(node) < draft; }

 private:
  const SchemaDocument& document_;
};

}  // namespace specdec
