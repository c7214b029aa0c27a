#include "decoders/drafters/pending_nodes.h"

#include "core/language_model.h"

namespace specdec {

TokenBatch PendingNodes::batch(const Draft& partial, std::span<const int64_t> frontier,
                               int64_t pending, const Tensor& tokens) {
  pending_.resize(partial.tokens.size(), -1);
  std::vector<Token> drafted;
  TokenBatch batch;
  for (const int64_t node : frontier) {
    const auto index = static_cast<size_t>(node);
    drafted.push_back(partial.tokens[index]);
    batch.parents.push_back(pending_[static_cast<size_t>(partial.parents[index])]);
    pending_[index] = pending++;
  }
  batch.tokens = tokens.defined() ? tokens : token_tensor(drafted);
  return batch;
}

}  // namespace specdec
