#include "grammar/masks/class_trees.h"

#include <algorithm>
#include <map>
#include <utility>

namespace specdec {
namespace {

constexpr size_t kSampled = 12;         ///< states that say which characters are told apart
constexpr int kWorthATree = 5;          ///< languages of the same classes before a tree is made
constexpr size_t kMaxTrees = 4;         ///< that are kept
constexpr size_t kMaxNodes = 8192;      ///< of a tree
constexpr size_t kMaxStates = 1 << 16;  ///< whose targets are kept

}  // namespace

uint8_t ClassTrees::Classes::of(char32_t point) const {
  const auto range = std::lower_bound(lasts.begin(), lasts.end(), point) - lasts.begin();
  return of_range[static_cast<size_t>(range)];
}

uint64_t ClassTrees::Tree::bytes() const {
  return children_.capacity() * sizeof children_[0] + ends_.capacity() * sizeof ends_[0] +
         (end_of_.capacity() + quote_of_.capacity()) * sizeof end_of_[0] +
         targets_.size() * (sizeof(Targets) + 64);
}

uint64_t ClassTrees::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& tree : trees_) {
    bytes += tree->bytes_;
  }
  return bytes;
}

bool ClassTrees::alike(RegexId a, RegexId b, Tree& tree) {
  const std::lock_guard lock(tree.mutex_);
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
    const std::optional<Targets> left = targets(at.a, tree);
    const std::optional<Targets> right = targets(at.b, tree);
    if (!left || !right || regexes_.matches_empty(at.a) != regexes_.matches_empty(at.b)) {
      return false;
    }
    for (size_t c = 0; c < tree.classes_.count; ++c) {
      const bool dead = (*left)[c] == RegexStore::kNothing;
      if (dead != ((*right)[c] == RegexStore::kNothing)) {
        return false;
      }
      if (const uint32_t child = tree.children_[at.node][c]; !dead && child != 0) {
        open.push_back({child, (*left)[c], (*right)[c]});
      }
    }
  }
  return true;
}

bool ClassTrees::walk(RegexId language, const TokenSpelling& spelling, Tree& tree,
                      MaskWords& inside, MaskWords& close) {
  const std::lock_guard lock(tree.mutex_);
  std::vector<RegexId> states(tree.children_.size(), RegexStore::kNothing);  // by node
  std::vector<uint8_t> closes(states.size() + 1);                            // by one more
  states[0] = language;
  for (size_t node = 0; node < states.size(); ++node) {  // children come after their parents
    const auto& children = tree.children_[node];
    const bool live = states[node] != RegexStore::kNothing;
    closes[node + 1] = live && regexes_.matches_empty(states[node]) ? 1 : 0;
    if (!live || std::ranges::all_of(children, [](uint32_t child) { return child == 0; })) {
      continue;
    }
    const std::optional<Targets>& after = targets(states[node], tree);
    if (!after) {
      return false;
    }
    for (size_t c = 0; c < tree.classes_.count; ++c) {
      if (children[c] != 0) {
        states[children[c]] = (*after)[c];
      }
    }
  }
  std::vector<uint8_t> alive(tree.ends_.size());
  for (size_t i = 1; i < alive.size(); ++i) {
    const auto& [node, part] = tree.ends_[i];
    alive[i] = states[node] != RegexStore::kNothing &&
               (part == 0 ||
                regexes_.goes_on(states[node],
                                 spelling.parts[part - TokenSpelling::kPart].reach(tree.escapes_)));
  }
  for (size_t token = 0; token < tree.end_of_.size(); ++token) {
    inside[token / 32] |= uint32_t{alive[tree.end_of_[token]]} << token % 32;
    close[token / 32] |= uint32_t{closes[tree.quote_of_[token]]} << token % 32;
  }
  return true;
}

/// Classes of characters that the language and those that follow it tell apart.
std::optional<ClassTrees::Classes> ClassTrees::classes_of(RegexId language) {
  std::vector<RegexId> states = {language};
  std::vector<std::vector<RegexStore::Transition>> maps;
  std::vector<char32_t> lasts;
  for (size_t i = 0; i < states.size(); ++i) {
    maps.push_back(regexes_.transitions(states[i]));
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

std::shared_ptr<ClassTrees::Tree> ClassTrees::find(RegexId language, const TokenSpelling& spelling,
                                                   const Escapes& escapes) {
  auto classes = classes_of(language);
  if (!classes) {
    return nullptr;
  }
  auto tree = latest(*std::move(classes), escapes);
  const std::lock_guard lock(tree->mutex_);
  if (++tree->met_ == kWorthATree) {
    plant(spelling, *tree);
    tree->bytes_ = tree->bytes();
  }
  return tree->children_.empty() ? nullptr : tree;
}

/// The latest tree of some classes, which may still have to be planted.
std::shared_ptr<ClassTrees::Tree> ClassTrees::latest(Classes classes, const Escapes& escapes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(trees_, [&](const std::shared_ptr<Tree>& tree) {
    return tree->escapes_ == escapes && tree->classes_ == classes;
  });
  if (found != trees_.end()) {
    trees_.splice(trees_.begin(), trees_, found);
    return trees_.front();
  }
  auto tree = std::make_shared<Tree>();
  tree->classes_ = std::move(classes);
  tree->escapes_ = escapes;
  trees_.push_front(tree);
  if (trees_.size() > kMaxTrees) {
    trees_.pop_back();
  }
  return tree;
}

/// Plants the tree; none when the tokens have too many sequences.
void ClassTrees::plant(const TokenSpelling& spelling, Tree& tree) const {
  std::array<uint8_t, 128> ascii = {};
  for (char32_t c = 0; c < ascii.size(); ++c) {
    ascii[c] = tree.classes_.of(c);
  }
  tree.children_.emplace_back();
  tree.end_of_.resize(static_cast<size_t>(trie_.vocab_size()));
  tree.quote_of_.resize(tree.end_of_.size());
  std::vector<uint32_t> whole;                   // ends, by node
  std::unordered_map<uint64_t, uint32_t> parts;  // ends within a character
  std::vector<uint32_t> path = {0};              // by depth
  for (TokenTrie::Node node = 1; node < trie_.size();) {
    const uint32_t depth = trie_.depth(node);
    const char32_t point = spelling.points[node];
    if (point == TokenSpelling::kQuote || point == TokenSpelling::kNothing) {
      for (const Token token :
           point == TokenSpelling::kQuote ? trie_.tokens_below(node) : std::span<const Token>()) {
        tree.quote_of_[static_cast<size_t>(token)] = path[depth - 1] + 1;
      }
      node = trie_.end(node);
      continue;
    }
    uint32_t there = path[depth - 1];
    if (point <= CodePoints::kLast) {
      const uint8_t which = point < ascii.size() ? ascii[point] : tree.classes_.of(point);
      const uint32_t from = there;
      there = tree.children_[from][which];
      if (there == 0) {
        there = static_cast<uint32_t>(tree.children_.size());
        tree.children_[from][which] = there;
        tree.children_.emplace_back();
      }
    }
    path.resize(std::max<size_t>(path.size(), depth + 1));
    path[depth] = there;
    if (tree.children_.size() > kMaxNodes) {
      tree.children_.clear();
      return;
    }
    if (!trie_.tokens(node).empty()) {
      const char32_t part = point <= CodePoints::kLast ? 0 : point;
      whole.resize(tree.children_.size());
      uint32_t& end = part == 0 ? whole[there] : parts[uint64_t{there} << 32 | part];
      if (end == 0) {
        end = static_cast<uint32_t>(tree.ends_.size());
        tree.ends_.push_back({there, part});
      }
      for (const Token token : trie_.tokens(node)) {
        tree.end_of_[static_cast<size_t>(token)] = end;
      }
    }
    ++node;
  }
}

const std::optional<ClassTrees::Targets>& ClassTrees::targets(RegexId state, Tree& tree) {
  if (const auto known = tree.targets_.find(state); known != tree.targets_.end()) {
    return known->second;
  }
  if (tree.targets_.size() >= kMaxStates) {
    tree.targets_.clear();
  }
  const auto& found =
      tree.targets_.emplace(state, find_targets(state, tree.classes_)).first->second;
  tree.bytes_ = tree.bytes();
  return found;
}

/// Targets of a state's classes; nothing where it tells characters of a class apart.
std::optional<ClassTrees::Targets> ClassTrees::find_targets(RegexId state, const Classes& classes) {
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
