#include "grammar/schema/schema_document.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "grammar/schema/json_pointer.h"
#include "grammar/schema/meta_schemas.h"
#include "grammar/schema/uri.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

// Where subschemas stand.
constexpr auto kOne = std::to_array<std::string_view>(
    {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not",
     "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "contentSchema"});
constexpr auto kLists =
    std::to_array<std::string_view>({"allOf", "anyOf", "items", "oneOf", "prefixItems"});
constexpr auto kMaps =
    std::to_array<std::string_view>({"$defs", "definitions", "dependencies", "dependentSchemas",
                                     "patternProperties", "properties"});

struct Dialect {
  std::string_view uri;
  SchemaDraft draft;
};
constexpr std::array kDialects = {
    Dialect{"json-schema.org/draft-04/schema", SchemaDraft::kDraft4},
    Dialect{"json-schema.org/draft-06/schema", SchemaDraft::kDraft6},
    Dialect{"json-schema.org/draft-07/schema", SchemaDraft::kDraft7},
    Dialect{"json-schema.org/draft/2019-09/schema", SchemaDraft::k2019},
    Dialect{"json-schema.org/draft/2020-12/schema", SchemaDraft::k2020},
    Dialect{"json-schema.org/schema", SchemaDraft::k2020},  // the newest one
};

std::optional<SchemaDraft> known_dialect(std::string_view uri) {
  uri = uri.substr(0, uri.find('#'));
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (uri.starts_with(scheme)) {
      uri.remove_prefix(scheme.size());
    }
  }
  for (const Dialect& dialect : kDialects) {
    if (uri == dialect.uri) {
      return dialect.draft;
    }
  }
  return std::nullopt;
}

bool is_schema(const JsonValue& value) { return value.is(Type::kObject) || value.is_boolean(); }

}  // namespace

SchemaDocument::SchemaDocument(JsonValue schema, SchemaRegistry registry)
    : registry_(std::move(registry)) {
  if (!is_schema(schema)) {
    throw GrammarError("#: a schema must be an object or a boolean");
  }
  documents_.push_back(std::move(schema));
  add_document(documents_.front(), "", SchemaDraft::k2020);
}

SchemaNode SchemaDocument::add_document(const JsonValue& value, const std::string& uri,
                                        SchemaDraft draft) {
  const auto resource = static_cast<uint32_t>(resources_.size());
  Resource fresh;
  fresh.uri = uri;
  fresh.draft = draft;
  fresh.root = static_cast<SchemaNode>(nodes_.size());
  resources_.push_back(std::move(fresh));
  by_uri_[uri] = resource;
  return visit(value, resource, "");
}

bool SchemaDocument::has_assertions(SchemaNode node) const {
  return resources_[nodes_[node].resource].has_assertions;
}

bool SchemaDocument::asserts_formats(SchemaNode node) const {
  return resources_[nodes_[node].resource].asserts_formats;
}

bool SchemaDocument::is_dynamic(uint32_t resource) const {
  return resources_[resource].recursive_anchor || !resources_[resource].dynamic_anchors.empty();
}

std::string SchemaDocument::location(SchemaNode node) const {
  return resources_[nodes_[node].resource].uri + "#" + nodes_[node].pointer;
}

void SchemaDocument::read_dialect(const JsonValue& value, Resource& resource, int meta_schemas) {
  constexpr int kMaxMetaSchemas = 20;
  const JsonValue* schema = value.find("$schema");
  if (schema != nullptr && !schema->is(Type::kString)) {
    throw GrammarError("$schema: must be a string");
  }
  if (schema == nullptr) {
    resource.looks_old = value.find("definitions") != nullptr && value.find("$defs") == nullptr;
    return;
  }
  if (const auto draft = known_dialect(schema->text)) {
    resource.draft = *draft;
    return;
  }
  const JsonValue* found = registry_.find(schema->text);
  if (found == nullptr) {
    throw GrammarError(fmt::format(
        "$schema: '{}' is not known; known are draft-04, draft-06, draft-07, 2019-09 and 2020-12 "
        "(http://json-schema.org/draft-07/schema#, https://json-schema.org/draft/2020-12/schema), "
        "and meta-schemas in the registry",
        schema->text));
  }
  if (meta_schemas == kMaxMetaSchemas) {
    throw GrammarError(fmt::format(
        "$schema: '{}' is a meta-schema whose own $schema leads through {} others to no draft; do "
        "they name each other in a circle? One must name a draft, such as "
        "https://json-schema.org/draft/2020-12/schema",
        schema->text, kMaxMetaSchemas));
  }
  read_dialect(*found, resource, meta_schemas + 1);
  const JsonValue* vocabulary = found->find("$vocabulary");
  if (vocabulary != nullptr && !vocabulary->is(Type::kObject)) {
    throw GrammarError(fmt::format("{}#/$vocabulary: must be an object", schema->text));
  }
  const auto has = [&](std::string_view name) {
    return std::any_of(vocabulary->members.begin(), vocabulary->members.end(),
                       [&](const JsonMember& member) { return member.name.ends_with(name); });
  };
  resource.has_assertions = vocabulary == nullptr || has("/vocab/validation");
  resource.asserts_formats = vocabulary != nullptr && has("/vocab/format-assertion");
}

uint32_t SchemaDocument::enter_resource(const JsonValue& value, uint32_t resource) {
  const bool is_root = resources_[resource].root == nodes_.size();
  Resource own = resources_[resource];
  if (is_root) {
    read_dialect(value, resources_[resource]);
    own = resources_[resource];
  } else if (value.find("$schema") != nullptr && value.find("$id") != nullptr) {
    read_dialect(value, own);
  }
  const JsonValue* id = value.find(own.draft == SchemaDraft::kDraft4 ? "id" : "$id");
  const bool old = own.draft <= SchemaDraft::kDraft7 || own.looks_old;
  const bool hidden = old && value.find("$ref") != nullptr;
  if (id == nullptr || !id->is(Type::kString) || hidden || id->text.starts_with('#')) {
    return resource;
  }
  const std::string uri = without_fragment(resolve_uri(own.uri, id->text));
  if (is_root) {
    resources_[resource].uri = uri;
    by_uri_.emplace(uri, resource);
    return resource;
  }
  if (uri == own.uri) {
    return resource;
  }
  const auto fresh = static_cast<uint32_t>(resources_.size());
  if (!by_uri_.emplace(uri, fresh).second && own.draft > SchemaDraft::kDraft4) {
    throw GrammarError(fmt::format("two subschemas have the $id '{}'", uri));
  }
  own.uri = uri;
  own.root = static_cast<SchemaNode>(nodes_.size());
  own.recursive_anchor = false;
  own.anchors.clear();
  own.dynamic_anchors.clear();
  resources_.push_back(std::move(own));
  return fresh;
}

void SchemaDocument::add_anchor(SchemaNode node, const std::string& name, bool dynamic) {
  Resource& resource = resources_[nodes_[node].resource];
  const auto [entry, fresh] = resource.anchors.emplace(name, node);
  if (!fresh && entry->second != node && resource.draft > SchemaDraft::kDraft4) {
    throw GrammarError(fmt::format("{}: the anchor '{}' stands here twice", location(node), name));
  }
  if (dynamic) {
    resource.dynamic_anchors.insert(name);
  }
}

void SchemaDocument::add_anchors(const JsonValue& value, SchemaNode node) {
  Resource& resource = resources_[nodes_[node].resource];
  const auto text = [&](const char* keyword) -> std::optional<std::string> {
    const JsonValue* found = value.find(keyword);
    return found != nullptr && found->is(Type::kString) ? std::optional(found->text) : std::nullopt;
  };
  if (resource.draft <= SchemaDraft::kDraft7 || resource.looks_old) {
    const auto id = text(resource.draft == SchemaDraft::kDraft4 ? "id" : "$id");
    const size_t hash = id ? id->find('#') : std::string::npos;
    if (hash != std::string::npos && hash + 1 < id->size()) {
      add_anchor(node, id->substr(hash + 1), false);
    }
  }
  if (resource.draft <= SchemaDraft::kDraft7) {
    return;
  }
  if (const auto anchor = text("$anchor")) {
    add_anchor(node, *anchor, false);
  }
  if (const auto anchor = text("$dynamicAnchor"); anchor && resource.draft == SchemaDraft::k2020) {
    add_anchor(node, *anchor, true);
  }
  const JsonValue* recursive = value.find("$recursiveAnchor");
  if (recursive != nullptr && resource.draft == SchemaDraft::k2019) {
    resource.recursive_anchor |= recursive->is(Type::kTrue);
  }
}

SchemaNode SchemaDocument::visit(const JsonValue& value, uint32_t resource, std::string pointer) {
  if (const auto found = by_value_.find(&value); found != by_value_.end()) {
    return found->second;
  }
  if (value.is(Type::kObject)) {
    const uint32_t entered = enter_resource(value, resource);
    pointer = entered == resource ? pointer : "";
    resource = entered;
  }
  const auto node = static_cast<SchemaNode>(nodes_.size());
  nodes_.push_back({&value, resource, pointer});
  by_value_[&value] = node;
  if (value.is(Type::kObject)) {
    add_anchors(value, node);
    visit_children(value, resource, pointer);
  }
  return node;
}

void SchemaDocument::visit_children(const JsonValue& value, uint32_t resource,
                                    const std::string& pointer) {
  const auto visit_if_schema = [&](const JsonValue& child, const std::string& path) {
    if (is_schema(child)) {
      visit(child, resource, path);
    }
  };
  for (const auto& [name, child] : value.members) {
    const std::string path = pointer + "/" + escape_pointer(name);
    const auto named = [&name = name](std::string_view keyword) { return name == keyword; };
    if (std::any_of(kOne.begin(), kOne.end(), named)) {
      visit_if_schema(child, path);
    }
    if (std::any_of(kLists.begin(), kLists.end(), named) && child.is(Type::kArray)) {
      for (size_t i = 0; i < child.items.size(); ++i) {
        visit_if_schema(child.items[i], path + "/" + std::to_string(i));
      }
    }
    if (std::any_of(kMaps.begin(), kMaps.end(), named) && child.is(Type::kObject)) {
      for (const auto& [key, part] : child.members) {
        visit_if_schema(part, path + "/" + escape_pointer(key));
      }
    }
  }
}

SchemaNode SchemaDocument::node_of(const JsonValue& value, uint32_t resource,
                                   const std::string& pointer) {
  if (const auto found = by_value_.find(&value); found != by_value_.end()) {
    return found->second;
  }
  if (!is_schema(value)) {
    throw GrammarError(fmt::format("{}#{}: a schema must be an object or a boolean",
                                   resources_[resource].uri, pointer));
  }
  return visit(value, resource, pointer);
}

SchemaNode SchemaDocument::child(SchemaNode node, std::string_view keyword) {
  const JsonValue* found = value(node).find(keyword);
  SPECDEC_CHECK(found != nullptr, "no keyword {}", keyword);
  return node_of(*found, resource(node), nodes_[node].pointer + "/" + std::string(keyword));
}

SchemaNode SchemaDocument::child(SchemaNode node, std::string_view keyword, size_t index) {
  const JsonValue* found = value(node).find(keyword);
  SPECDEC_CHECK(found != nullptr && index < found->items.size(), "no part of {}", keyword);
  return node_of(found->items[index], resource(node),
                 fmt::format("{}/{}/{}", nodes_[node].pointer, keyword, index));
}

SchemaNode SchemaDocument::child(SchemaNode node, std::string_view keyword,
                                 const JsonMember& part) {
  return node_of(part.value, resource(node),
                 fmt::format("{}/{}/{}", nodes_[node].pointer, keyword, escape_pointer(part.name)));
}

uint32_t SchemaDocument::find_resource(const std::string& uri, SchemaNode from,
                                       std::string_view reference) {
  if (const auto found = by_uri_.find(uri); found != by_uri_.end()) {
    return found->second;
  }
  const JsonValue* document = registry_.find(uri);
  if (const auto meta = meta_schema(uri); meta && document == nullptr) {
    documents_.push_back(parse_json(*meta, uri));
    document = &documents_.back();
  }
  if (document == nullptr) {
    throw GrammarError(fmt::format(
        "{}: $ref: '{}' is not in the schema; remote documents are read from the registry only "
        "(give '{}' there)",
        location(from), reference, uri));
  }
  if (!is_schema(*document)) {
    throw GrammarError(fmt::format("the registry's '{}' is not a schema", uri));
  }
  const SchemaNode root = add_document(*document, uri, draft(from));
  return nodes_[root].resource;
}

SchemaNode SchemaDocument::by_pointer(SchemaNode from, uint32_t resource, std::string_view pointer,
                                      std::string_view reference) {
  const JsonValue* at = &value(resources_[resource].root);
  std::string path;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t slash = pointer.find('/');
    const std::string part = unescape_pointer(pointer.substr(0, slash));
    at = pointer_step(*at, part);
    if (at == nullptr) {
      throw GrammarError(
          fmt::format("{}: $ref: '{}' names nothing in the schema", location(from), reference));
    }
    path += '/';
    path += escape_pointer(part);
    if (const auto found = by_value_.find(at); found != by_value_.end()) {
      const Node& node = nodes_[found->second];
      path = node.resource == resource ? path : node.pointer;
      resource = node.resource;
    }
    pointer = slash == std::string_view::npos ? std::string_view() : pointer.substr(slash);
  }
  return node_of(*at, resource, path);
}

SchemaNode SchemaDocument::resolve(SchemaNode node, const std::string& reference) {
  const std::string uri = resolve_uri(resources_[resource(node)].uri, reference);
  const uint32_t target = find_resource(without_fragment(uri), node, reference);
  const size_t hash = uri.find('#');
  const std::string fragment =
      hash == std::string::npos ? "" : percent_decode(std::string_view(uri).substr(hash + 1));
  const SchemaNode root = resources_[target].root;
  if (fragment.empty()) {
    return root;
  }
  if (fragment.starts_with('/')) {
    return by_pointer(node, target, fragment, reference);
  }
  const auto anchor = resources_[target].anchors.find(fragment);
  if (anchor == resources_[target].anchors.end()) {
    throw GrammarError(fmt::format("{}: $ref: there is no anchor '{}'", location(node), reference));
  }
  return anchor->second;
}

SchemaNode SchemaDocument::resolve_dynamic(SchemaNode node, const std::string& reference,
                                           const std::vector<uint32_t>& scope) {
  const SchemaNode first = resolve(node, reference);
  const size_t hash = reference.find('#');
  const std::string name = hash == std::string::npos ? "" : reference.substr(hash + 1);
  const Resource& here = resources_[resource(first)];
  const auto anchor = here.anchors.find(name);
  const bool dynamic = here.dynamic_anchors.contains(name) && anchor != here.anchors.end() &&
                       anchor->second == first;
  if (!dynamic) {
    return first;
  }
  for (const uint32_t outer : scope) {
    if (resources_[outer].dynamic_anchors.contains(name)) {
      return resources_[outer].anchors.find(name)->second;
    }
  }
  return first;
}

SchemaNode SchemaDocument::resolve_recursive(SchemaNode node, const std::vector<uint32_t>& scope) {
  const SchemaNode first = resources_[resource(node)].root;
  if (!resources_[resource(node)].recursive_anchor) {
    return first;
  }
  for (const uint32_t outer : scope) {
    if (resources_[outer].recursive_anchor) {
      return resources_[outer].root;
    }
  }
  return first;
}

}  // namespace specdec
