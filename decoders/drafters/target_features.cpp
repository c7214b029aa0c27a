#include "decoders/drafters/target_features.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"

namespace specdec {

void TargetFeatures::reset() {
  known_ = 0;
  parts_.clear();
}

Tensor TargetFeatures::features_of(const ForwardResult& result) const {
  return capture_layers_.empty() ? result.final_hidden : at::cat(result.captured, 1);
}

void TargetFeatures::collect(const DraftContext& context) {
  const auto wanted = static_cast<int64_t>(context.committed.size()) - 1;
  if (known_ == 0) {
    SPECDEC_CHECK(context.prompt_result != nullptr, "a head needs the features of the prompt");
    parts_.push_back(features_of(*context.prompt_result));
    known_ = parts_.back().size(0);
  }
  if (known_ < wanted) {
    SPECDEC_CHECK(context.last_step != nullptr, "a head was not shown every step");
    const std::vector<int64_t>& path = context.last_step->verified.path;
    const Tensor features = features_of(context.last_step->result);
    const bool is_chain = path.back() + 1 == std::ssize(path);  // the first nodes, then: a view
    parts_.push_back(
        is_chain ? features.narrow(0, 0, std::ssize(path))
                 : features.index_select(0, at::tensor(path, at::kLong).to(features.device())));
    known_ += parts_.back().size(0);
  }
  SPECDEC_CHECK(known_ == wanted, "a head knows {} features of {} committed tokens", known_,
                wanted + 1);
}

Tensor TargetFeatures::untaken() {
  if (parts_.size() > 1) {
    for (Tensor& part : parts_) {
      part = part.to(parts_.back().device());  // the prompt's lie on the host
    }
    parts_ = {at::cat(parts_)};
  }
  return parts_.empty() ? Tensor() : parts_.front();
}

void TargetFeatures::drop(int64_t count) {
  const Tensor all = untaken();
  const int64_t left = all.size(0) - count;
  if (left == 0) {
    parts_.clear();
  } else {
    parts_ = {all.narrow(0, count, left)};
  }
}

Tensor TargetFeatures::take() {
  Tensor features = untaken();
  parts_.clear();
  return features;
}

}  // namespace specdec
