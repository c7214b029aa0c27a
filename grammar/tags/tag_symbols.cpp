#include "grammar/tags/tag_symbols.h"

#include <fmt/format.h>

#include <algorithm>

namespace specdec {

TagSymbols symbols_of(std::string_view text) {
  TagSymbols symbols;
  for (const char byte : text) {
    symbols.push_back(static_cast<uint8_t>(byte));
  }
  return symbols;
}

std::string symbols_text(const TagSymbols& symbols) {
  std::string text;
  for (const uint32_t symbol : symbols) {
    text += is_token(symbol) ? fmt::format("<[{}]>", token_of(symbol))
                             : std::string(1, static_cast<char>(symbol));
  }
  return text;
}

TagTexts::Node TagTexts::add(const TagSymbols& symbols) {
  Node node = GrowingTrie::kRoot;
  for (const uint32_t symbol : symbols) {
    node = trie_.add(node, symbol);
  }
  ends_.resize(trie_.size());
  return node;
}

TagTexts::Node TagTexts::add(const TagSymbols& symbols, TagEntry then) {
  const Node node = add(symbols);
  if (std::ranges::find(ends_[node], then) == ends_[node].end()) {
    ends_[node].push_back(then);
  }
  return node;
}

TagSymbols TagTexts::symbols(Node node) const {
  TagSymbols symbols;
  for (; node != GrowingTrie::kRoot; node = trie_.parent(node)) {
    symbols.push_back(trie_.symbol(node));
  }
  std::ranges::reverse(symbols);
  return symbols;
}

std::vector<uint32_t> TagTexts::child_symbols(Node node) const {
  std::vector<uint32_t> symbols;
  for (Node child = trie_.newest_child(node); child != GrowingTrie::kNone;
       child = trie_.next_child(child)) {
    symbols.push_back(trie_.symbol(child));
  }
  return symbols;
}

}  // namespace specdec
