#pragma once
#include <algorithm>

#include "decoders/shapes/chain.h"

namespace specdec {

/// Drafts one token more than were accepted in the last step.
class LastRunLength final : public ChainShape {
 public:
  explicit LastRunLength(int64_t max) : max_(max) {}
  void reset() override { length_ = 1; }
  int64_t length(int64_t /*context*/) override { return length_; }
  void learn(int64_t /*drafted*/, int64_t accepted) override {
    length_ = std::min(max_, accepted + 1);
  }

 private:
  int64_t max_;
  int64_t length_ = 1;
};

}  // namespace specdec
