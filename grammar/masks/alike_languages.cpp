#include "grammar/masks/alike_languages.h"

#include <algorithm>
#include <map>
#include <utility>

namespace specdec {
namespace {

constexpr size_t kSampled = 12;         ///< states that say which characters are told apart
constexpr int kWorthATree = 3;          ///< languages of the same classes before a tree is made
constexpr size_t kMaxTrees = 4;         ///< that are kept
constexpr size_t kMaxNodes = 8192;      ///< of a tree
constexpr size_t kMaxStates = 1 << 16;  ///< whose targets are kept

}  // namespace

uint8_t AlikeLanguages::Classes::of(char32_t point) const {
  const auto range = std::lower_bound(lasts.begin(), lasts.end(), point) - lasts.begin();
  return of_range[static_cast<size_t>(range)];
}

uint64_t AlikeLanguages::bytes() const {
  uint64_t bytes = 0;
  for (const Tree& tree : trees_) {
    bytes += tree.children.capacity() * sizeof tree.children[0] +
             tree.targets.size() * (sizeof(Targets) + 64);
  }
  return bytes;
}

bool AlikeLanguages::alike(RegexId a, RegexId b, const TokenSpelling& spelling,
                           EscapeStyle escapes) {
  auto classes = classes_of(a);
  Tree* tree = classes ? tree_for(*std::move(classes), spelling, escapes) : nullptr;
  if (tree == nullptr || tree->children.empty()) {
    return false;
  }
  struct Place {
    uint32_t node;
    RegexId a, b;
  };
  std::vector<Place> open = {{0, a, b}};
  while (!open.empty()) {
    const Place at = open.back();
    open.pop_back();
    if (at.a == at.b) {
      continue;
    }
    const std::optional<Targets> left = targets(at.a, *tree);
    const std::optional<Targets> right = targets(at.b, *tree);
    if (!left || !right || regexes_.matches_empty(at.a) != regexes_.matches_empty(at.b)) {
      return false;
    }
    for (size_t c = 0; c < tree->classes.count; ++c) {
      const bool dead = (*left)[c] == RegexStore::kNothing;
      if (dead != ((*right)[c] == RegexStore::kNothing)) {
        return false;
      }
      if (const uint32_t child = tree->children[at.node][c]; !dead && child != 0) {
        open.push_back({child, (*left)[c], (*right)[c]});
      }
    }
  }
  return true;
}

/// As the language and those that follow it tell characters apart.
std::optional<AlikeLanguages::Classes> AlikeLanguages::classes_of(RegexId language) {
  std::vector<RegexId> states = {language};
  std::vector<std::vector<RegexStore::Transition>> maps;
  std::vector<char32_t> lasts;
  for (size_t i = 0; i < states.size(); ++i) {
    const auto all = regexes_.transitions(states[i]);
    maps.emplace_back(all.begin(), all.end());
    for (const RegexStore::Transition& part : maps.back()) {
      lasts.push_back(part.last);
      const bool fresh = part.target != RegexStore::kNothing &&
                         std::find(states.begin(), states.end(), part.target) == states.end();
      if (fresh && states.size() < kSampled) {
        states.push_back(part.target);
      }
    }
  }
  std::sort(lasts.begin(), lasts.end());
  lasts.erase(std::unique(lasts.begin(), lasts.end()), lasts.end());
  Classes classes;
  std::map<std::vector<RegexId>, uint8_t> known;
  std::vector<size_t> at(maps.size(), 0);
  for (const char32_t last : lasts) {
    std::vector<RegexId> met;
    for (size_t i = 0; i < maps.size(); ++i) {
      at[i] += maps[i][at[i]].last < last ? 1 : 0;
      met.push_back(maps[i][at[i]].target);
    }
    const auto [found, fresh] = known.emplace(std::move(met), classes.count);
    if (fresh && ++classes.count > kMaxClasses) {
      return std::nullopt;
    }
    classes.of_range.push_back(found->second);
  }
  classes.lasts = std::move(lasts);
  return classes;
}

AlikeLanguages::Tree* AlikeLanguages::tree_for(Classes classes, const TokenSpelling& spelling,
                                               EscapeStyle escapes) {
  const auto found = std::ranges::find_if(
      trees_, [&](const Tree& tree) { return tree.escapes == escapes && tree.classes == classes; });
  Tree tree;
  if (found != trees_.end()) {
    tree = std::move(*found);
    trees_.erase(found);
  } else {
    tree.classes = std::move(classes);
    tree.escapes = escapes;
  }
  if (++tree.met == kWorthATree) {
    plant(spelling, tree);
  }
  trees_.push_front(std::move(tree));
  if (trees_.size() > kMaxTrees) {
    trees_.pop_back();
  }
  return &trees_.front();
}

/// No tree when the tokens have too many sequences.
void AlikeLanguages::plant(const TokenSpelling& spelling, Tree& tree) const {
  std::array<uint8_t, 128> ascii = {};
  for (char32_t c = 0; c < ascii.size(); ++c) {
    ascii[c] = tree.classes.of(c);
  }
  tree.children.emplace_back();
  std::vector<uint32_t> path = {0};  // by depth
  for (TokenTrie::Node node = 1; node < trie_.size();) {
    const uint32_t depth = trie_.depth(node);
    const char32_t point = spelling.points[node];
    if (point == TokenSpelling::kQuote || point == TokenSpelling::kNothing) {
      node = trie_.end(node);
      continue;
    }
    uint32_t there = path[depth - 1];
    if (point <= CodePoints::kLast) {
      const uint8_t which = point < ascii.size() ? ascii[point] : tree.classes.of(point);
      const uint32_t from = there;
      there = tree.children[from][which];
      if (there == 0) {
        there = static_cast<uint32_t>(tree.children.size());
        tree.children[from][which] = there;
        tree.children.emplace_back();
      }
    }
    path.resize(std::max<size_t>(path.size(), depth + 1));
    path[depth] = there;
    if (tree.children.size() > kMaxNodes) {
      tree.children.clear();
      return;
    }
    ++node;
  }
}

const std::optional<AlikeLanguages::Targets>& AlikeLanguages::targets(RegexId state, Tree& tree) {
  if (const auto known = tree.targets.find(state); known != tree.targets.end()) {
    return known->second;
  }
  if (tree.targets.size() >= kMaxStates) {
    tree.targets.clear();
  }
  return tree.targets.emplace(state, find_targets(state, tree.classes)).first->second;
}

/// Nothing where a state tells characters of a class apart.
std::optional<AlikeLanguages::Targets> AlikeLanguages::find_targets(RegexId state,
                                                                    const Classes& classes) {
  const auto all = regexes_.transitions(state);
  Targets found = {};
  std::array<bool, kMaxClasses> known = {};
  size_t at = 0;
  for (size_t range = 0; range < classes.lasts.size(); ++range) {
    const RegexId target = all[at].target;
    const uint8_t which = classes.of_range[range];
    if (all[at].last < classes.lasts[range] || (known[which] && found[which] != target)) {
      return std::nullopt;
    }
    known[which] = true;
    found[which] = target;
    at += all[at].last == classes.lasts[range] ? 1 : 0;
  }
  return found;
}

}  // namespace specdec
