// What a DraftGrowth leaves to a device: whole chains and trees, and the best tokens after nodes.
#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/device_probs.h"
#include "core/draft_vocabulary.h"
#include "core/error.h"
#include "decoders/shapes/draft_growth.h"

namespace specdec {
namespace {

/// What a grammar allows after nodes, as a device reads it: by the columns of its logits.
class DeviceMasks {
 public:
  /// `vocabulary`: of the columns, where these are not all tokens.
  explicit DeviceMasks(const DraftVocabulary* vocabulary) : vocabulary_(vocabulary) {}

  void add(DraftGrammar& grammar, const Draft& draft, int64_t node) {
    if (grammar.is_at_limit(draft, node)) {
      close();
      return;
    }
    kept_.push_back(grammar.mask(draft, node));
    const TokenMask& mask = kept_.back();
    const TokenMask::Content& content = mask.content();
    if (vocabulary_ == nullptr || mask.empty()) {
      masks_.push_back({content.base, content.added, content.removed});
      return;
    }
    const AllowedTokens columns = vocabulary_->columns_of(allowed_by(mask));
    masks_.push_back({.base = columns, .closed = forbids_all({}, columns, vocabulary_->columns())});
  }
  /// Adds a node that nothing is drafted after.
  void close() { masks_.push_back({.base = nullptr, .closed = true}); }
  std::span<const NodeMask> of_nodes() const { return masks_; }

 private:
  const DraftVocabulary* vocabulary_;
  std::vector<TokenMask> kept_;  // which the masks borrow
  std::vector<NodeMask> masks_;
};

/// Reads what the first levels of a tree found, and writes it to the tree: 0 for nodes that are not
/// there.
std::optional<DrawnTree> read_tree(DraftTreeDrawing& drawing, int64_t levels, Draft& tree) {
  std::optional<DrawnTree> drawn = drawing.read(levels);
  if (drawn) {
    std::transform(drawn->tokens.begin() + 1, drawn->tokens.end(), tree.tokens.begin() + 1,
                   [](Token token) { return std::max(token, 0); });
  }
  return drawn;
}

}  // namespace

bool DraftGrowth::is_plain() const {
  const SamplingParams& sampling = context_.sampling;
  return sampling.repetition_penalty == 1.0 && sampling.logit_bias.empty() &&
         !child_distribution_.leaves_out_tokens();
}

bool DraftGrowth::may_draw_on_device() const {
  return is_plain() && (!draws_ || context_.device_random.has_value());
}

bool DraftGrowth::may_rank_on_device(int64_t candidates) const {
  return candidates > 0 && !draws_ && is_plain() && child_distribution_.expands_on_device();
}

std::optional<DeviceRandomness> DraftGrowth::device_random() const {
  return draws_ ? context_.device_random : std::nullopt;
}

bool DraftGrowth::add_drawn_chain() {
  const int64_t reach = std::min(room(), context_.max_depth);
  const int64_t count = std::min(reach - 1, evaluations_left_) + 1;
  std::vector<int64_t> parents(static_cast<size_t>(std::max<int64_t>(count, 0)) + 1);
  std::iota(parents.begin(), parents.end(), -1);
  const std::vector<std::vector<int64_t>> levels = branching_nodes(parents);
  if (!may_draw_levels(count, levels)) {
    return false;
  }
  std::optional<DrawnChain> chain;
  if (!grammar_) {
    chain = child_distribution_.draw_chain(
        {.count = count, .sampling = context_.sampling, .random = device_random()});
  }
  if (!chain) {
    const std::vector<int64_t> ranks(parents.size());
    const TreeRequest request = tree_request(parents, ranks);
    return add_nodes(request, draw_levels(request, levels));
  }
  if (context_.read_backs != nullptr) {
    *context_.read_backs += chain->read_backs;
  }
  if (chain->probs.defined()) {
    draft_.probs = device_probs(chain->probs);
  }
  for (const Token token : chain->tokens) {
    const int64_t parent = draft_.proposed();
    draft_.child_probs[static_cast<size_t>(parent)] = draft_.probs.empty() ? -1 : parent;
    add(token, parent);
  }
  return true;
}

std::optional<DrawnTree> DraftGrowth::draw_levels(const TreeRequest& request,
                                                  const std::vector<std::vector<int64_t>>& levels) {
  Draft tree{.tokens = std::vector<Token>(request.parents.size()),
             .parents = {request.parents.begin(), request.parents.end()},
             .child_probs = std::vector<int64_t>(request.parents.size(), -1)};
  tree.tokens.front() = draft_.tokens.front();
  std::optional<DraftGrammar> grammar;  // of the tree's nodes, which are not all added
  if (grammar_) {
    grammar.emplace(*context_.grammar, context_.mask_seconds);
  }
  std::unique_ptr<DraftTreeDrawing> drawing;
  std::optional<DrawnTree> drawn;  // the levels before, where masks follow from them
  const auto is_there = [&](int64_t node) {
    return !drawn || drawn->tokens[static_cast<size_t>(node)] >= 0;
  };
  Tensor tokens;
  int64_t found = 0;  // levels
  for (const std::vector<int64_t>& level : levels) {
    if (grammar && drawing != nullptr) {
      drawn = read_tree(*drawing, found, tree);
      if (!drawn || std::none_of(level.begin(), level.end(), is_there)) {
        break;
      }
    }
    const ForwardResult result = child_distribution_.expand_on_device(tree, level, tokens);
    SPECDEC_CHECK(result.sampler != nullptr, "a tree is drawn by logits that lie on no device");
    if (drawing == nullptr) {
      drawing = result.sampler->begin_tree(request, result.logits.size(1));
    }
    DeviceMasks masks(request.vocabulary);  // found while the forward runs
    for (size_t i = 0; grammar && i < level.size(); ++i) {
      is_there(level[i]) ? masks.add(*grammar, tree, level[i]) : masks.close();
    }
    tokens = drawing->draw(found++, result.logits, masks.of_nodes());
  }
  if (found == std::ssize(levels)) {
    drawn = read_tree(*drawing, found, tree);
  }
  if (drawn) {
    child_distribution_.see_tokens(tree);
  }
  return drawn;
}

bool DraftGrowth::may_draw_levels(int64_t proposed,
                                  const std::vector<std::vector<int64_t>>& levels) {
  int64_t evaluated = -1;  // the root's logits come with the cache
  for (const std::vector<int64_t>& level : levels) {
    evaluated += std::ssize(level);
  }
  return proposed > 0 && proposed <= room() && evaluated <= evaluations_left_ &&
         std::ssize(levels) <= context_.max_depth && draft_.proposed() == 0 &&
         may_draw_on_device() && child_distribution_.expands_on_device();
}

TreeRequest DraftGrowth::tree_request(std::span<const int64_t> parents,
                                      std::span<const int64_t> ranks) const {
  return {.parents = parents,
          .ranks = ranks,
          .sampling = context_.sampling,
          .random = device_random(),
          .vocabulary = child_distribution_.vocabulary()};
}

bool DraftGrowth::add_drawn_tree(std::span<const int64_t> parents, std::span<const int64_t> ranks) {
  const std::vector<std::vector<int64_t>> levels = branching_nodes(parents);
  if (!may_draw_levels(std::ssize(parents) - 1, levels)) {
    return false;
  }
  const TreeRequest request = tree_request(parents, ranks);
  std::optional<DrawnTree> drawn;
  if (!grammar_) {
    drawn = child_distribution_.draw_tree(request);
  }
  return add_nodes(request, drawn ? drawn : draw_levels(request, levels));
}

bool DraftGrowth::add_nodes(const TreeRequest& request, const std::optional<DrawnTree>& found) {
  if (!found) {
    return false;
  }
  const DrawnTree& drawn = *found;
  const std::span<const int64_t> parents = request.parents;
  if (context_.read_backs != nullptr) {
    *context_.read_backs += drawn.read_backs;
  }
  if (drawn.probs.defined()) {
    const DraftVocabulary* vocabulary = child_distribution_.vocabulary();
    draft_.probs =
        device_probs(vocabulary == nullptr ? drawn.probs : vocabulary->widened(drawn.probs, 0.0));
  }
  std::vector<int64_t> places(parents.size(), -1);  // in the draft
  places[0] = 0;
  int64_t row = -1;  // of the parent's distribution
  for (size_t node = 1; node < parents.size(); ++node) {
    row += node == 1 || parents[node] != parents[node - 1] ? 1 : 0;
    if (drawn.tokens[node] >= 0) {
      const int64_t parent = places[static_cast<size_t>(parents[node])];
      places[node] = add(drawn.tokens[node], parent);
      draft_.child_probs[static_cast<size_t>(parent)] = draft_.probs.empty() ? -1 : row;
    }
  }
  return true;
}

bool DraftGrowth::rank(std::span<const int64_t> nodes, const ForwardResult& found,
                       int64_t candidates) {
  const DraftVocabulary* vocabulary = child_distribution_.vocabulary();
  DeviceMasks masks(vocabulary);
  for (size_t i = 0; grammar_ && i < nodes.size(); ++i) {
    masks.add(*grammar_, draft_, nodes[i]);
  }
  std::optional<DeviceCandidates> ranked =
      found.sampler->rank(found.logits, context_.sampling, candidates, masks.of_nodes());
  if (!ranked) {
    return false;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<Candidate>& best = ranked->best[i];
    for (Candidate& candidate : best) {
      candidate.token = vocabulary == nullptr
                            ? candidate.token
                            : vocabulary->tokens()[static_cast<size_t>(candidate.token)];
    }
    logits_[static_cast<size_t>(nodes[i])].best = std::move(best);
  }
  if (context_.read_backs != nullptr) {
    *context_.read_backs += ranked->read_backs;
  }
  return true;
}

}  // namespace specdec
