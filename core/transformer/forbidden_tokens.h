#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/types.h"

namespace specdec {

/// Tokens that a model never generates: padding of its vocabulary, suppressed ones.
class ForbiddenTokens {
 public:
  /// Those from `usable` on (0 = from `vocab` on), and `suppressed`, of logits on `device`. Throws
  /// InternalError for tokens outside the vocabulary.
  ForbiddenTokens(int64_t vocab, int64_t usable, std::vector<Token> suppressed,
                  at::Device device = at::kCPU);

  /// Their logits [n, vocab or more, contiguous] become -inf.
  void apply(at::Tensor& logits) const;

 private:
  int64_t usable_;
  std::vector<Token> suppressed_;
  at::Tensor ids_;  ///< the same, [n] int64 on the device
};

}  // namespace specdec
