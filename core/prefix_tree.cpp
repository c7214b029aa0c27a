#include "core/prefix_tree.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

constexpr int64_t kServesNothing = std::numeric_limits<int64_t>::max();

}  // namespace

struct PrefixTree::Node {
  Node* parent = nullptr;
  std::vector<Token> edge = {};  // from the parent
  int64_t depth = 0;             // tokens from the root
  Id id = -1;                    // of the text that ends here
  int64_t shortest = kServesNothing;
  int64_t least = kServesNothing;                        // `shortest` of the texts here and below
  std::map<Token, std::unique_ptr<Node>> children = {};  // by the first token of their edges
};

PrefixTree::PrefixTree() : root_(std::make_unique<Node>()) {}
PrefixTree::~PrefixTree() = default;

/// All nodes whose edges the tokens follow, the last one maybe not to its end; the root first.
std::vector<PrefixTree::Step> PrefixTree::walk(TokenSpan tokens) const {
  std::vector<Step> steps = {{root_.get(), 0}};
  while (steps.back().common == steps.back().node->depth) {
    const auto [node, common] = steps.back();
    const TokenSpan rest = tokens.subspan(static_cast<size_t>(common));
    const auto next = rest.empty() ? node->children.end() : node->children.find(rest.front());
    if (next == node->children.end()) {
      break;
    }
    const std::vector<Token>& edge = next->second->edge;
    const auto size = static_cast<std::ptrdiff_t>(std::min(edge.size(), rest.size()));
    const auto differs = std::mismatch(edge.begin(), edge.begin() + size, rest.begin()).first;
    steps.push_back({next->second.get(), common + (differs - edge.begin())});
  }
  return steps;
}

PrefixTree::Match PrefixTree::match(TokenSpan tokens) const {
  const std::vector<Step> steps = walk(tokens);
  const auto served =
      std::find_if(steps.rbegin(), steps.rend() - 1,  // all but the root
                   [](const Step& step) { return step.node->least <= step.common; });
  if (served == steps.rend() - 1) {
    return {};
  }
  const Node* node = served->node;
  while (node->shortest > node->least) {
    node = std::find_if(node->children.begin(), node->children.end(), [node](const auto& child) {
             return child.second->least == node->least;
           })->second.get();
  }
  return {node->id, served->common};
}

std::vector<PrefixTree::Id> PrefixTree::beginnings(TokenSpan tokens) const {
  std::vector<Id> ids;
  for (const auto& [node, common] : walk(tokens)) {
    if (node->id >= 0 && common == node->depth) {
      ids.push_back(node->id);
    }
  }
  return ids;
}

void PrefixTree::insert(TokenSpan tokens, Id id, int64_t shortest) {
  SPECDEC_CHECK(!tokens.empty() && id >= 0 && !places_.contains(id), "text {} of {} tokens", id,
                tokens.size());
  const auto [last, common] = walk(tokens).back();
  Node* place = common < last->depth ? &split(*last, common) : last;
  if (common < std::ssize(tokens)) {
    place = &attach(*place, tokens.subspan(static_cast<size_t>(common)));
  }
  SPECDEC_CHECK(place->id < 0, "the text of {} tokens is there already", tokens.size());
  place->id = id;
  place->shortest = shortest;
  places_.emplace(id, place);
  for (Node* node = place; node != nullptr; node = node->parent) {
    node->least = std::min(node->least, shortest);
  }
}

void PrefixTree::erase(Id id) {
  const auto found = places_.find(id);
  SPECDEC_CHECK(found != places_.end(), "there is no text {}", id);
  Node& node = *found->second;
  places_.erase(found);
  node.id = -1;
  node.shortest = kServesNothing;
  Node* parent = node.parent;
  update_least(&node);
  detach(node);
  if (parent != root_.get() && parent->id < 0) {
    detach(*parent);
  }
}

/// A node in the middle of another's edge, `depth` tokens from the root.
PrefixTree::Node& PrefixTree::split(Node& node, int64_t depth) {
  Node& parent = *node.parent;
  std::unique_ptr<Node>& slot = parent.children.at(node.edge.front());
  auto middle = std::make_unique<Node>();
  const auto first = static_cast<std::ptrdiff_t>(depth - parent.depth);
  middle->parent = &parent;
  middle->depth = depth;
  middle->least = node.least;
  middle->edge.assign(node.edge.begin(), node.edge.begin() + first);
  node.edge.erase(node.edge.begin(), node.edge.begin() + first);
  node.parent = middle.get();
  middle->children.emplace(node.edge.front(), std::move(slot));
  slot = std::move(middle);
  ++nodes_;
  return *slot;
}

PrefixTree::Node& PrefixTree::attach(Node& parent, TokenSpan edge) {
  auto leaf = std::make_unique<Node>();
  leaf->parent = &parent;
  leaf->edge.assign(edge.begin(), edge.end());
  leaf->depth = parent.depth + std::ssize(edge);
  ++nodes_;
  tokens_ += std::ssize(edge);
  return *(parent.children[edge.front()] = std::move(leaf));
}

/// Takes a node out that no text needs: one without children, or with one, which gets its edge.
void PrefixTree::detach(Node& node) {
  std::map<Token, std::unique_ptr<Node>>& siblings = node.parent->children;
  const Token first = node.edge.front();
  if (node.children.empty()) {
    tokens_ -= std::ssize(node.edge);
    --nodes_;
    siblings.erase(first);
  } else if (node.children.size() == 1) {
    std::unique_ptr<Node> child = std::move(node.children.begin()->second);
    child->edge.insert(child->edge.begin(), node.edge.begin(), node.edge.end());
    child->parent = node.parent;
    --nodes_;
    siblings.at(first) = std::move(child);
  }
}

/// Finds what the texts from a node up to the root serve.
void PrefixTree::update_least(Node* node) {
  for (; node != nullptr; node = node->parent) {
    node->least = node->shortest;
    for (const auto& [token, child] : node->children) {
      node->least = std::min(node->least, child->least);
    }
  }
}

}  // namespace specdec
