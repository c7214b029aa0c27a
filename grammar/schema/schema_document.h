#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/schema/json_value.h"
#include "grammar/schema/schema_registry.h"

namespace specdec {

/// A version of JSON Schema, by the schema's `$schema`.
enum class SchemaDraft { kDraft4, kDraft6, kDraft7, k2019, k2020 };

/// Index of one subschema of a SchemaDocument.
using SchemaNode = uint32_t;

/// A schema with everything that it refers to: finds what `$ref`, `$dynamicRef` and `$recursiveRef`
/// mean (JSON Schema 2020-12 core, sections 8 and 9), never over the network.
class SchemaDocument {
 public:
  /// `registry`: other documents by their URIs. Throws GrammarError for an unknown `$schema`, two
  /// subschemas of one name, and documents that are no schemas.
  SchemaDocument(JsonValue schema, SchemaRegistry registry);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  SchemaNode root() const { return 0; }
  const JsonValue& value(SchemaNode node) const { return *nodes_[node].value; }
  SchemaDraft draft(SchemaNode node) const { return resources_[nodes_[node].resource].draft; }
  /// False where a custom meta-schema leaves out the vocabulary of assertions (type, minimum, ...).
  bool has_assertions(SchemaNode node) const;
  /// True where it asks for `format` to be an assertion.
  bool asserts_formats(SchemaNode node) const;
  /// Where it stands: a JSON pointer with the document's URI before it ("#/properties/a").
  std::string location(SchemaNode node) const;

  /// The subschema below a keyword, or below its `index`-th part or a member of it.
  SchemaNode child(SchemaNode node, std::string_view keyword);
  SchemaNode child(SchemaNode node, std::string_view keyword, size_t index);
  SchemaNode child(SchemaNode node, std::string_view keyword, const JsonMember& part);

  /// Index of the resource (the part of a document with one `$id`) that a node belongs to.
  uint32_t resource(SchemaNode node) const { return nodes_[node].resource; }
  /// True when the resource's dynamic anchors matter to references from below it.
  bool is_dynamic(uint32_t resource) const;
  /// What `$ref` means at a node. Throws GrammarError when there is no such subschema.
  SchemaNode resolve(SchemaNode node, const std::string& reference);
  /// What `$dynamicRef` (2020-12) and `$recursiveRef` (2019-09) mean there, where `scope` are the
  /// dynamic resources that were entered on the way, outermost first.
  SchemaNode resolve_dynamic(SchemaNode node, const std::string& reference,
                             const std::vector<uint32_t>& scope);
  SchemaNode resolve_recursive(SchemaNode node, const std::vector<uint32_t>& scope);

 private:
  struct Resource {
    std::string uri;
    SchemaDraft draft = SchemaDraft::k2020;
    SchemaNode root = 0;
    bool has_assertions = true;
    bool asserts_formats = false;
    bool looks_old = false;  ///< no `$schema`, but written as until draft 7
    bool recursive_anchor = false;
    std::map<std::string, SchemaNode, std::less<>> anchors;
    std::set<std::string, std::less<>> dynamic_anchors;
  };
  struct Node {
    const JsonValue* value = nullptr;
    uint32_t resource = 0;
    std::string pointer;
  };

  SchemaNode add_document(const JsonValue& value, const std::string& uri, SchemaDraft draft);
  SchemaNode visit(const JsonValue& value, uint32_t resource, std::string pointer);
  void visit_children(const JsonValue& value, uint32_t resource, const std::string& pointer);
  uint32_t enter_resource(const JsonValue& value, uint32_t resource);
  void add_anchors(const JsonValue& value, SchemaNode node);
  void add_anchor(SchemaNode node, const std::string& name, bool dynamic);
  /// `meta_schemas`: how many of the registry led to this one, each by its `$schema`.
  void read_dialect(const JsonValue& value, Resource& resource, int meta_schemas = 0);
  SchemaNode by_pointer(SchemaNode from, uint32_t resource, std::string_view pointer,
                        std::string_view reference);
  SchemaNode node_of(const JsonValue& value, uint32_t resource, const std::string& pointer);
  uint32_t find_resource(const std::string& uri, SchemaNode from, std::string_view reference);

  std::deque<JsonValue> documents_;
  SchemaRegistry registry_;
  std::vector<Resource> resources_;
  std::map<std::string, uint32_t> by_uri_;
  std::vector<Node> nodes_;
  std::unordered_map<const JsonValue*, SchemaNode> by_value_;
};

}  // namespace specdec
