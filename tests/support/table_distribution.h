#pragma once
#include <vector>

#include "decoders/draft_shape.h"
#include "tests/support/fake_model.h"

namespace specdec {

/// A drafter's distributions from a table; notes what it was asked for.
class TableDistribution final : public ChildDistribution {
 public:
  TableDistribution(LogitTable table, std::vector<Token> committed);
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;
  /// The tokens before the one that follows `node`.
  std::vector<Token> history(const Draft& draft, int64_t node) const;
  const std::vector<std::vector<int64_t>>& frontiers() const { return frontiers_; }

 private:
  LogitTable table_;
  std::vector<Token> committed_;
  std::vector<std::vector<int64_t>> frontiers_;
};

}  // namespace specdec
