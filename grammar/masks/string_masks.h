#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "grammar/masks/class_trees.h"
#include "grammar/masks/language_walks.h"
#include "grammar/masks/traversal_cache.h"
#include "grammar/regex/regex.h"

namespace specdec {

/// Which tokens stay inside a JSON string of some language, and which close it. One walk over the
/// vocabulary for each such place: all grammars of a vocabulary share them. A walk follows only
/// what differs from a walk that was made before, so most languages cost little. For any number of
/// threads, which walk at the same time.
class StringMasks {
 public:
  using Inside = StringTraversal::Inside;
  using Exit = StringTraversal::Exit;
  using Walk = StringTraversal;
  using Lengths = TraversalCache::Lengths;

  /// Borrows both: the languages of one store, the walks of all.
  StringMasks(TraversalCache& walks, RegexStore& regexes);

  const TokenTrie& trie() const { return walks_.trie(); }
  const QuoteRemainders& remainders() const { return walks_.remainders(); }

  /// The tokens below a node of the trie, as seen from the beginning of a string or from a place
  /// between two of its characters, that the node's own text has led to.
  std::shared_ptr<const Walk> walk(TokenTrie::Node node, RegexId language, EscapeStyle escapes);
  /// See TraversalCache.
  std::shared_ptr<const MaskWords> unite(const std::shared_ptr<const MaskWords>& a,
                                         const std::shared_ptr<const MaskWords>& b) {
    return walks_.unite(a, b);
  }
  std::shared_ptr<const MaskWords> bits(const Walk& walk, EscapeStyle escapes, bool may_close,
                                        const Lengths& lengths) {
    return walks_.bits(walk, escapes, may_close, lengths);
  }
  std::vector<Exit> exits(const Walk& walk, EscapeStyle escapes, uint32_t remainder) {
    return walks_.exits(walk, escapes, remainder);
  }

  std::vector<Exit> plain_exits(const Walk& walk, EscapeStyle escapes) {
    return walks_.plain_exits(walk, escapes);
  }

  RegexStore& regexes() { return regexes_; }
  uint64_t walks() const { return walks_.whole_walks(); }  ///< over the whole vocabulary, so far
  /// Bytes of what is known of languages, beside the walks.
  uint64_t bytes() const { return maker_.bytes() + classes_.bytes(); }

 private:
  using Node = TokenTrie::Node;

  TraversalCache::Place place(Node node, RegexId language, EscapeStyle escapes) const {
    return {node, escapes, regexes_.key(language)};
  }
  std::shared_ptr<const Walk> make_walk(RegexId language, EscapeStyle escapes);
  std::shared_ptr<const Walk> walk_whole(RegexId language, EscapeStyle escapes);
  std::shared_ptr<const Walk> walk_by_classes(RegexId language, const std::list<RegexId>& recent,
                                              EscapeStyle escapes);
  void remember(RegexId language, EscapeStyle escapes);
  void forget(RegexId language, EscapeStyle escapes);
  /// Languages whose walks are kept.
  std::list<RegexId> recent(EscapeStyle escapes);

  TraversalCache& walks_;
  RegexStore& regexes_;
  std::mutex mutex_;
  /// Languages with bits, newest first; under the lock.
  std::map<EscapeStyle, std::list<RegexId>> recent_;
  LanguageWalks maker_;
  ClassTrees classes_;
};

}  // namespace specdec
