#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "core/draft.h"
#include "core/drawn_chain.h"
#include "core/drawn_tree.h"
#include "core/forward.h"
#include "decoders/verifier.h"

namespace specdec {

class DraftVocabulary;
struct DraftContext;

/// Limits of what may be drafted.
struct DraftLimits {
  int64_t tokens = 0;    ///< nodes beside the root; 0 = a plain step
  int64_t depth = 0;     ///< depth of the deepest node; a root has depth 0
  int64_t branches = 1;  ///< children of a node; 1 = a chain
};

/// Way in which the siblings of a draft tree are found.
enum class Siblings {
  kDrawn,  ///< one after the other from the drafter's distribution, without replacement
  kBest,   ///< the most likely ones in order, deterministically
};

/// What a drafter with a model or a head knows: the distribution of the token after a node. A
/// DraftShape grows the tree with it.
class ChildDistribution {
 public:
  virtual ~ChildDistribution() = default;
  /// Logits [k, vocab] of the token after each of the `frontier` nodes, unprocessed, float32 or
  /// float64 on any device. The first call of a draft asks for the root; later ones for nodes whose
  /// parents were asked for before, so no node is evaluated twice.
  virtual Tensor expand(const Draft& partial, std::span<const int64_t> frontier) = 0;
  /// Whether nothing is drafted after a node. It may follow from what was drafted down to the node,
  /// never from what could be drafted after it: else drawn drafts would be lossy.
  virtual bool ends(const Draft& partial, int64_t node) {
    (void)partial, (void)node;
    return false;
  }
  /// Whether a device answers in this draft: draw_chain, draw_tree and expand_on_device are asked
  /// there alone. `ends` is true of no node then.
  virtual bool expands_on_device() { return false; }
  /// Drafts a chain behind the root on the device of a model or a head that draws them itself,
  /// instead of expand; nothing is asked of the draft afterwards. nullopt: the shape grows the
  /// chain by expand_on_device.
  virtual std::optional<DrawnChain> draw_chain(const ChainRequest& chain) {
    (void)chain;
    return std::nullopt;
  }
  /// Drafts a tree behind the root as draw_chain does a chain.
  virtual std::optional<DrawnTree> draw_tree(const TreeRequest& tree) {
    (void)tree;
    return std::nullopt;
  }
  /// expand() whose logits stay on the device, beside the sampler that finds tokens by them.
  /// `tokens`: those of the frontier, [k] int32 on the device, where the partial draft has their
  /// places alone; undefined = they are the draft's.
  virtual ForwardResult expand_on_device(const Draft& partial, std::span<const int64_t> frontier,
                                         const Tensor& tokens) {
    (void)partial, (void)frontier, (void)tokens;
    return {};
  }
  /// The tokens that expand_on_device got on the device, now read: the same nodes, also those that
  /// come to be left out.
  virtual void see_tokens(const Draft& draft) { (void)draft; }
  /// Whether logits may be -inf: where a grammar or a bias allows none of the others, nothing is
  /// drafted.
  virtual bool leaves_out_tokens() const { return false; }
  /// Tokens of the columns of these logits, when they are not all: then [k, columns].
  virtual const DraftVocabulary* vocabulary() const { return nullptr; }
};

/// Shape of a draft, which says what nodes it has: chain, static tree, dynamic tree. Decides from
/// counts and frozen cost curves alone, never from live timing, so a run can be repeated; begins
/// anew with each request, so it can be resumed.
class DraftShape {
 public:
  virtual ~DraftShape() = default;
  /// A new request begins.
  virtual void reset() {}
  /// What the next step may draft after `context` committed tokens.
  virtual DraftLimits next(int64_t context) = 0;
  /// Grows the draft of the step that `next` planned, within the context's limits.
  virtual Draft grow(const DraftContext& context, ChildDistribution& distribution,
                     Siblings siblings) = 0;
  /// What came of the step.
  virtual void observe(const Draft& draft, const VerifyResult& result) {
    (void)draft;
    (void)result;
  }
  /// True when drafts may have siblings.
  virtual bool branches() const { return true; }
  /// False when nodes are left out after their siblings were found, which is lossless only for
  /// siblings found deterministically.
  virtual bool allows_drawn() const { return true; }
};

}  // namespace specdec
