#include "grammar/masks/quote_remainders.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "grammar/masks/mask_cache_kinds.h"

namespace specdec {
namespace {

using Node = TokenTrie::Node;

/// The bytes on the way from one node down to another.
std::string text_between(const TokenTrie& trie, Node from, Node to) {
  std::string text;
  for (Node at = from; at != to;) {
    Node child = at + 1;
    while (trie.end(child) <= to) {
      child = trie.end(child);
    }
    text += static_cast<char>(trie.byte(child));
    at = child;
  }
  return text;
}

}  // namespace

QuoteRemainders::QuoteRemainders(const TokenTrie& trie, const CacheFile* cache)
    : trie_(trie), was_cached_(cache != nullptr && read(*cache)) {
  if (!was_cached_) {
    collect();
  }
}

bool QuoteRemainders::read(const CacheFile& cache) {
  auto trie = TokenTrie::read(cache, {.kind = kRemainders});
  if (!trie || !cache.read_parts({.kind = kRemainderTexts}, may_have_name_) ||
      std::ssize(may_have_name_) != trie->vocab_size()) {
    may_have_name_.clear();
    return false;
  }
  texts_ = std::make_unique<TokenTrie>(std::move(*trie));
  return true;
}

void QuoteRemainders::write(CacheFileWriter& file) const {
  texts_->write(file, {.kind = kRemainders});
  file.add_parts({.kind = kRemainderTexts}, may_have_name_);
}

void QuoteRemainders::collect() {
  std::set<std::string> found;
  for (Node quote = 1; quote < trie_.size(); ++quote) {
    if (trie_.byte(quote) != '"') {
      continue;
    }
    for (Node node = quote + 1; node < trie_.end(quote); ++node) {
      if (!trie_.tokens(node).empty()) {
        found.insert(text_between(trie_, quote, node));
      }
    }
  }
  std::vector<std::string_view> texts = {std::string_view()};
  texts.insert(texts.end(), found.begin(), found.end());
  texts_ = std::make_unique<TokenTrie>(texts);
  for (const std::string_view text : texts) {
    const size_t comma = std::min(text.find(','), text.size());
    may_have_name_.push_back(std::count(text.begin() + comma, text.end(), '"') > 1);
  }
}

uint32_t QuoteRemainders::after(Node quote, Node node) const {
  if (quote == node) {
    return 0;
  }
  const Node found = texts_->find(0, text_between(trie_, quote, node));
  SPECDEC_CHECK(found != TokenTrie::kNone, "a token's text after a quote is not known");
  return static_cast<uint32_t>(texts_->tokens(found).front());
}

}  // namespace specdec
