#include "grammar/tags/tag_search.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/formats/utf8.h"

namespace specdec {

TagSearch::TagSearch(TagTexts texts, const std::vector<std::string>& triggers,
                     const std::vector<std::string>& excludes)
    : texts_(std::move(texts)), nodes_(texts_.trie().size()) {
  mark_triggers(triggers);
  mark_excluded(excludes);
  link();
  check_wholes();
}

void TagSearch::mark_triggers(const std::vector<std::string>& triggers) {
  for (const std::string& trigger : triggers) {
    Node node = GrowingTrie::kRoot;
    for (const uint32_t symbol : symbols_of(trigger)) {
      node = node == kNone ? kNone : texts_.child(node, symbol);
    }
    if (node == kNone || node == GrowingTrie::kRoot) {
      throw GrammarError(fmt::format("no tag begins with the trigger '{}'", trigger));
    }
    nodes_[node].trigger = true;
  }
  for (const std::string& trigger : triggers) {
    const std::string shorter = trigger.substr(0, trigger.size() - 1);
    if (begins_with_trigger(shorter)) {
      throw GrammarError(fmt::format(
          "after the beginning of the trigger '{}' a tag must come, as that is a trigger, too; "
          "remove the longer one",
          trigger));
    }
  }
}

bool TagSearch::begins_with_trigger(const std::string& text) const {
  Node node = GrowingTrie::kRoot;
  for (const uint32_t symbol : symbols_of(text)) {
    node = texts_.child(node, symbol);
    if (node == kNone || nodes_[node].trigger) {
      return node != kNone;
    }
  }
  return false;
}

void TagSearch::mark_excluded(const std::vector<std::string>& excludes) {
  for (const std::string& text : excludes) {
    if (text.empty() || !is_utf8(text)) {
      throw GrammarError("an excluded text must not be empty, and must be UTF-8");
    }
    if (begins_with_trigger(text)) {  // then a tag must come, and not this text
      continue;
    }
    const Node node = texts_.add(symbols_of(text));
    if (!texts_.ends(node).empty()) {
      throw GrammarError(fmt::format(
          "the excluded text '{}' is what a tag begins with; remove one of them", text));
    }
    nodes_.resize(texts_.trie().size());
    nodes_[node].excluded = true;
    excludes_characters_ |= static_cast<uint8_t>(text.back()) >= 0x80;
  }
}

void TagSearch::link() {
  const GrowingTrie& trie = texts_.trie();
  std::vector<Node> order;  // shorter texts first
  for (Node node = 1; node < trie.size(); ++node) {
    order.push_back(node);
  }
  std::ranges::stable_sort(order, {}, [&](Node node) { return trie.length(node); });
  for (const Node node : order) {
    Links& here = nodes_[node];
    const Node parent = trie.parent(node);
    const bool continues = nodes_[parent].committed || is_token(trie.symbol(node));
    here.committed = continues || here.trigger;
    if (!continues && parent != GrowingTrie::kRoot) {
      here.fail = child_of_ending(nodes_[parent].fail, trie.symbol(node));
    }
    const bool is_found = !texts_.ends(node).empty() || here.excluded || here.trigger;
    here.found = is_found ? node : (continues ? kNone : nodes_[here.fail].found);
  }
}

/// Each text must be found whole: nothing before it.
void TagSearch::check_wholes() const {
  const GrowingTrie& trie = texts_.trie();
  for (Node whole = 1; whole < trie.size(); ++whole) {
    for (Node node = texts_.ends(whole).empty() ? GrowingTrie::kRoot : trie.parent(whole);
         node != GrowingTrie::kRoot; node = trie.parent(node)) {
      const Node found = nodes_[node].found;
      if (!nodes_[node].committed && found != kNone) {
        const std::string text = symbols_text(texts_.symbols(whole));
        const std::string inner = symbols_text(texts_.symbols(found));
        const bool begins = text.starts_with(inner) && !nodes_[found].excluded;
        throw GrammarError(fmt::format(
            "the tag '{}' is found before it is whole: '{}' is found in it; {}", text, inner,
            begins ? fmt::format("give the trigger '{}', after which either tag may come", inner)
                   : "remove one of them"));
      }
    }
  }
}

TagSearch::Node TagSearch::child_of_ending(Node node, uint32_t symbol) const {
  for (;; node = nodes_[node].fail) {
    const Node longer = texts_.child(node, symbol);
    if (longer != kNone) {
      return longer;
    }
    if (node == GrowingTrie::kRoot) {
      return is_token(symbol) ? kNone : GrowingTrie::kRoot;
    }
  }
}

TagSearch::Node TagSearch::next(Node node, uint32_t symbol) const {
  if (nodes_[node].committed) {
    return texts_.child(node, symbol);
  }
  const Node there = child_of_ending(node, symbol);
  if (there == kNone || nodes_[there].found == kNone) {
    return there;
  }
  const Node found = nodes_[there].found;
  return nodes_[found].excluded ? kNone : found;
}

std::vector<Token> TagSearch::tokens(Node node) const {
  std::vector<Token> tokens;
  for (;; node = nodes_[node].fail) {
    for (const uint32_t symbol : texts_.child_symbols(node)) {
      if (is_token(symbol)) {
        tokens.push_back(token_of(symbol));
      }
    }
    if (nodes_[node].committed || node == GrowingTrie::kRoot) {
      return tokens;
    }
  }
}

}  // namespace specdec
