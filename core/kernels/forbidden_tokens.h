#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/types.h"

namespace specdec {

/// Tokens that a model never generates: padding of its vocabulary, suppressed ones.
class ForbiddenTokens {
 public:
  /// Forbids tokens from `usable` on (0 = from `vocab` on), and `suppressed`, of logits on
  /// `device`. Throws InternalError for tokens outside the vocabulary.
  ForbiddenTokens(int64_t vocab, int64_t usable, std::vector<Token> suppressed,
                  at::Device device = at::kCPU);

  /// Sets the forbidden tokens' logits in [n, vocab or more, contiguous] to -inf, by the tensors'
  /// own operators where these are not on the host.
  void apply(at::Tensor& logits) const;
  /// Throws InternalError for logits that apply does not take.
  void check(const at::Tensor& logits) const;
  int64_t usable() const { return usable_; }
  const at::Tensor& suppressed() const { return ids_; }  ///< [m] int64 on the device

 private:
  int64_t usable_;
  int64_t least_columns_ = 0;  ///< of logits
  std::vector<Token> suppressed_;
  at::Tensor ids_;  ///< the same
};

}  // namespace specdec
