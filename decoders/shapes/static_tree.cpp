#include "decoders/shapes/static_tree.h"

#include <utility>

#include "core/error.h"

namespace specdec {

StaticTreeShape::StaticTreeShape(RankTree tree)
    : tree_(std::move(tree)),
      limits_{.tokens = tree_.nodes(), .depth = tree_.depth(), .branches = tree_.branches()} {
  if (tree_.nodes() == 0) {
    throw ConfigError("a draft tree needs a node beside its root");
  }
}

DraftLimits StaticTreeShape::next(int64_t /*context*/) { return limits_; }

Draft StaticTreeShape::grow(const DraftContext& context, ChildDistribution& distribution,
                            Siblings siblings) {
  return grow_rank_tree(tree_, context, distribution, siblings);
}

}  // namespace specdec
