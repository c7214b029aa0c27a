#include "decoders/drafters/target_features.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"

namespace specdec {

void TargetFeatures::reset() {
  known_ = 0;
  untaken_.clear();
}

Tensor TargetFeatures::features_of(const ForwardResult& result) const {
  return capture_layers_.empty() ? result.final_hidden : at::cat(result.captured, 1);
}

void TargetFeatures::collect(const DraftContext& context) {
  const auto wanted = static_cast<int64_t>(context.committed.size()) - 1;
  if (known_ == 0) {
    SPECDEC_CHECK(context.prompt_result != nullptr, "a head needs the features of the prompt");
    untaken_.push_back(features_of(*context.prompt_result));
    known_ = untaken_.back().size(0);
  }
  if (known_ < wanted) {
    SPECDEC_CHECK(context.last_step != nullptr, "a head was not shown every step");
    const std::vector<int64_t>& path = context.last_step->verified.path;
    const Tensor features = features_of(context.last_step->result);
    const bool is_chain = path.back() + 1 == std::ssize(path);  // the first nodes, then: a view
    untaken_.push_back(is_chain ? features.narrow(0, 0, std::ssize(path))
                                : features.index_select(0, at::tensor(path, at::kLong)));
    known_ += untaken_.back().size(0);
  }
  SPECDEC_CHECK(known_ == wanted, "a head knows {} features of {} committed tokens", known_,
                wanted + 1);
}

Tensor TargetFeatures::take() {
  if (untaken_.empty()) {
    return {};
  }
  Tensor features = untaken_.size() == 1 ? untaken_.front() : at::cat(untaken_);
  untaken_.clear();
  return features;
}

}  // namespace specdec
