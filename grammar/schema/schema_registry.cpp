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

const JsonValue* SchemaRegistry::find(std::string_view uri) const {
  if (!contains(uri)) {
    return nullptr;
  }
  const auto found = documents_->find(uri.substr(0, uri.find('#')));
  Document& document = *found->second;
  std::call_once(document.parsed,
                 [&] { document.value = parse_json(document.text, found->first); });
  return &document.value;
}

bool SchemaRegistry::contains(std::string_view uri) const {
  return documents_ != nullptr && documents_->contains(uri.substr(0, uri.find('#')));
}

const std::string& SchemaRegistry::text_of(const Document& document) { return document.text; }

}  // namespace specdec
