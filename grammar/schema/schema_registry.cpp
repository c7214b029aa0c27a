#include "grammar/schema/schema_registry.h"

#include <mutex>

#include "grammar/schema/uri.h"

namespace specdec {

struct SchemaRegistry::Document {
  explicit Document(std::string json) : text(std::move(json)) {}

  const std::string text;
  std::once_flag parsed;
  JsonValue value;
};

SchemaRegistry::SchemaRegistry(
    std::initializer_list<std::pair<std::string, std::string>> documents) {
  for (const auto& [uri, text] : documents) {
    add(uri, text);
  }
}

void SchemaRegistry::add(std::string_view uri, std::string text) {
  if (documents_ == nullptr || documents_.use_count() > 1) {  // copies keep theirs
    documents_ = std::make_shared<Documents>(documents_ == nullptr ? Documents() : *documents_);
  }
  documents_->insert_or_assign(without_fragment(uri), std::make_shared<Document>(std::move(text)));
}

SchemaRegistry::Document* SchemaRegistry::document(const std::string& uri) const {
  if (documents_ == nullptr) {
    return nullptr;
  }
  const auto found = documents_->find(uri);
  return found == documents_->end() ? nullptr : found->second.get();
}

const JsonValue* SchemaRegistry::find(std::string_view uri) const {
  const std::string name = without_fragment(uri);
  Document* found = document(name);
  if (found == nullptr) {
    return nullptr;
  }
  std::call_once(found->parsed, [&] { found->value = parse_json(found->text, name); });
  return &found->value;
}

bool SchemaRegistry::contains(std::string_view uri) const {
  return document(without_fragment(uri)) != nullptr;
}

const std::string& SchemaRegistry::text_of(const Document& document) { return document.text; }

}  // namespace specdec
