#include "grammar/masks/string_masks.h"

#include <algorithm>

namespace specdec {
namespace {

constexpr size_t kRecent = 12;  ///< walks that a new one is compared with

}  // namespace

StringMasks::StringMasks(TraversalCache& walks, RegexStore& regexes)
    : walks_(walks),
      regexes_(regexes),
      maker_(walks.trie(), walks.remainders(), regexes),
      classes_(walks.trie(), regexes) {}

std::shared_ptr<const StringTraversal> StringMasks::walk(Node node, RegexId language,
                                                         EscapeStyle escapes) {
  if (node == 0 && language == RegexStore::kAll) {
    auto everything = walks_.everything(escapes);
    return everything != nullptr ? everything
                                 : walks_.set_everything(escapes, walk_whole(language, escapes));
  }
  const TraversalCache::Place at = place(node, language, escapes);
  if (auto found = walks_.find(at)) {
    return found;
  }
  if (node == 0) {
    walk(0, RegexStore::kAll, escapes);  // what most languages are nearest to
  }
  std::shared_ptr<const Walk> made =
      node == 0 ? walk_whole(language, escapes) : maker_.below(node, language, walks_.of(escapes));
  return walks_.add(at, std::move(made));
}

/// Walks with bits are what others begin from.
void StringMasks::remember(RegexId language, EscapeStyle escapes) {
  const std::lock_guard lock(mutex_);
  std::list<RegexId>& recent = recent_[escapes];
  recent.remove(language);  // another thread's
  recent.push_front(language);
  if (recent.size() > kRecent) {
    const auto oldest = std::find_if(recent.rbegin(), recent.rend(),
                                     [](RegexId id) { return id != RegexStore::kAll; });
    recent.erase(std::prev(oldest.base()));
  }
}

void StringMasks::forget(RegexId language, EscapeStyle escapes) {
  const std::lock_guard lock(mutex_);
  recent_[escapes].remove(language);
}

std::list<RegexId> StringMasks::recent(EscapeStyle escapes) {
  const std::lock_guard lock(mutex_);
  std::list<RegexId>& recent = recent_[escapes];
  recent.remove_if([&](RegexId id) {
    return id != RegexStore::kAll && !walks_.has(place(0, id, escapes));  // dropped since
  });
  return recent;
}

/// The walk of a language which tokens cannot tell from this one, or a new walk; nullptr when the
/// language tells many characters apart, or few languages were like it.
std::shared_ptr<const StringTraversal> StringMasks::walk_by_classes(
    RegexId language, const std::list<RegexId>& recent, EscapeStyle escapes) {
  constexpr ptrdiff_t kTried = 2;
  const TokenSpelling& spelling = walks_.spelling(escapes);
  const std::shared_ptr<ClassTrees::Tree> tree =
      classes_.find(language, spelling, walks_.of(escapes));
  if (tree == nullptr) {
    return nullptr;
  }
  ptrdiff_t tried = 0;
  for (auto other = recent.begin(); other != recent.end() && tried < kTried; ++other, ++tried) {
    if (*other != RegexStore::kAll && classes_.alike(language, *other, *tree)) {
      if (auto walk = walks_.find(place(0, *other, escapes))) {
        forget(*other, escapes);  // this one takes its place
        return walk;
      }
    }
  }
  MaskWords inside(maker_.word_count());
  MaskWords close(maker_.word_count());
  if (!classes_.walk(language, spelling, *tree, inside, close)) {
    return nullptr;
  }
  walks_.count_whole();
  return maker_.keep(inside, close, spelling);
}

std::shared_ptr<const StringTraversal> StringMasks::make_walk(RegexId language,
                                                              EscapeStyle escapes) {
  const TokenSpelling& spelling = walks_.spelling(escapes);
  if (auto few = maker_.few(language, spelling, walks_.of(escapes))) {
    walks_.count_whole();
    return few;
  }
  LanguageWalks::Known known;
  const std::shared_ptr<const Walk> everything = walks_.everything(escapes);
  if (language != RegexStore::kAll) {
    const std::list<RegexId> others = recent(escapes);
    if (auto made = walk_by_classes(language, others, escapes)) {
      return made;
    }
    const bool with_all = everything->bits != nullptr;
    known.language = maker_.nearest(language, spelling, others, with_all);
  }
  if (known.language != RegexStore::kNothing) {
    known.walk = walk(0, known.language, escapes);
  }
  walks_.count_whole();
  return maker_.differing(language, known, spelling, walks_.of(escapes));
}

std::shared_ptr<const StringTraversal> StringMasks::walk_whole(RegexId language,
                                                               EscapeStyle escapes) {
  std::shared_ptr<const Walk> walk = walks_.read(place(0, language, escapes));
  walk = walk == nullptr ? make_walk(language, escapes) : walk;
  if (walk->bits != nullptr) {
    remember(language, escapes);
  }
  return walk;
}

}  // namespace specdec
