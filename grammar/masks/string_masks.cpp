#include "grammar/masks/string_masks.h"

#include <algorithm>

namespace specdec {
namespace {

constexpr size_t kRecent = 12;  ///< walks that a new one is compared with

}  // namespace

StringMasks::StringMasks(StringWalks& walks, RegexStore& regexes)
    : walks_(walks),
      regexes_(regexes),
      maker_(walks.trie(), walks.remainders(), regexes),
      alike_(walks.trie(), regexes) {}

std::shared_ptr<const StringWalk> StringMasks::walk(Node node, RegexId language,
                                                    EscapeStyle escapes) {
  if (node == 0 && language == RegexStore::kAll) {
    std::shared_ptr<const Walk>& everything = walks_.everything(escapes);
    everything = everything == nullptr ? walk_whole(language, escapes) : everything;
    return everything;
  }
  const StringWalks::Place at = place(node, language, escapes);
  if (auto found = walks_.find(at)) {
    return found;
  }
  if (node == 0) {
    walk(0, RegexStore::kAll, escapes);  // what most languages are nearest to
  }
  std::shared_ptr<const Walk> made =
      node == 0 ? walk_whole(language, escapes) : maker_.below(node, language, escapes);
  walks_.add(at, made);
  return made;
}

/// Walks with bits are what others begin from.
void StringMasks::remember(RegexId language, EscapeStyle escapes) {
  std::list<RegexId>& recent = recent_[escapes];
  recent.push_front(language);
  if (recent.size() > kRecent) {
    const auto oldest = std::find_if(recent.rbegin(), recent.rend(),
                                     [](RegexId id) { return id != RegexStore::kAll; });
    recent.erase(std::prev(oldest.base()));
  }
}

/// The walk of a language that tokens cannot tell from this one; nullptr when none is known.
std::shared_ptr<const StringWalk> StringMasks::find_alike(RegexId language, EscapeStyle escapes) {
  constexpr size_t kTried = 2;
  const TokenSpelling& spelling = walks_.spelling(escapes);
  std::list<RegexId>& recent = recent_[escapes];
  size_t tried = 0;
  for (auto other = recent.begin(); other != recent.end() && tried < kTried; ++other) {
    if (*other == RegexStore::kAll) {
      continue;
    }
    ++tried;
    if (alike_.alike(language, *other, spelling, escapes)) {
      std::shared_ptr<const Walk> walk = this->walk(0, *other, escapes);
      recent.remove(RegexId{*other});
      return walk;
    }
  }
  return nullptr;
}

std::shared_ptr<const StringWalk> StringMasks::make_walk(RegexId language, EscapeStyle escapes) {
  const TokenSpelling& spelling = walks_.spelling(escapes);
  if (auto few = maker_.few(language, spelling, escapes)) {
    walks_.count_whole();
    return few;
  }
  LanguageWalks::Known known;
  const std::shared_ptr<const Walk> everything = walks_.everything(escapes);
  if (language != RegexStore::kAll) {
    recent_[escapes].remove_if([&](RegexId id) {
      return id != RegexStore::kAll && !walks_.has(place(0, id, escapes));  // dropped since
    });
    if (auto alike = find_alike(language, escapes)) {
      return alike;
    }
    const bool with_all = everything->bits != nullptr;
    known.language = maker_.nearest(language, spelling, recent_[escapes], with_all);
  }
  if (known.language != RegexStore::kNothing) {
    known.walk = walk(0, known.language, escapes);
  }
  walks_.count_whole();
  return maker_.differing(language, known, spelling, escapes);
}

std::shared_ptr<const StringWalk> StringMasks::walk_whole(RegexId language, EscapeStyle escapes) {
  std::shared_ptr<const Walk> walk = walks_.read(place(0, language, escapes));
  walk = walk == nullptr ? make_walk(language, escapes) : walk;
  if (walk->bits != nullptr) {
    remember(language, escapes);
  }
  return walk;
}

}  // namespace specdec
