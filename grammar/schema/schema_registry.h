#pragma once
#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "grammar/schema/json_value.h"

namespace specdec {

/// JSON documents by URI that schemas may refer to. A document is parsed when it is first referred
/// to, and once: copies share it, on any thread.
class SchemaRegistry {
 public:
  SchemaRegistry() = default;
  /// URIs and texts.
  SchemaRegistry(std::initializer_list<std::pair<std::string, std::string>> documents);

  /// Adds a document. Of two with one URI the later one counts. Fragments of URIs have no meaning.
  void add(std::string_view uri, std::string text);
  /// The document of a URI; nullptr when there is none. Throws GrammarError when its text is not
  /// JSON.
  const JsonValue* find(std::string_view uri) const;
  bool contains(std::string_view uri) const;
  size_t size() const { return documents_ == nullptr ? 0 : documents_->size(); }
  /// Calls `use` with the URI and the text of each, in the order of the URIs.
  template <class Use>
  void for_each(const Use& use) const {
    if (documents_ != nullptr) {
      for (const auto& [uri, document] : *documents_) {
        use(uri, text_of(*document));
      }
    }
  }

 private:
  struct Document;
  using Documents = std::map<std::string, std::shared_ptr<Document>>;

  /// The document of a URI, which has no fragment; nullptr when there is none.
  Document* document(const std::string& uri) const;
  static const std::string& text_of(const Document& document);

  std::shared_ptr<Documents> documents_;  ///< nullptr: none
};

}  // namespace specdec
