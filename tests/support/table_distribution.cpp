#include "tests/support/table_distribution.h"

#include <ATen/ATen.h>

#include <utility>

namespace specdec {

TableDistribution::TableDistribution(LogitTable table, std::vector<Token> committed)
    : table_(std::move(table)), committed_(std::move(committed)) {}

std::vector<Token> TableDistribution::history(const Draft& draft, int64_t node) const {
  return draft.history(committed_, node);
}

Tensor TableDistribution::expand(const Draft& partial, std::span<const int64_t> frontier) {
  frontiers_.emplace_back(frontier.begin(), frontier.end());
  std::vector<Tensor> rows;
  for (const int64_t node : frontier) {
    rows.push_back(at::tensor(table_(history(partial, node)), at::kDouble));
  }
  return at::stack(rows);
}

}  // namespace specdec
