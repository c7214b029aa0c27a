#include "decoders/drafters/medusa.h"

#include <ATen/ATen.h>

#include <utility>

#include "decoders/drafters/hidden_states.h"

namespace specdec {
MedusaDrafter::MedusaDrafter(MedusaHeads heads, const MedusaOptions& options)
    : DistributionDrafter(options.sample), heads_(std::move(heads)) {}

void MedusaDrafter::check(const LanguageModel& target) const {
  check_hidden_states(target, heads_.hidden_size, heads_.vocab_size);
}

const Tensor& MedusaDrafter::distribution(int64_t head) {
  Tensor& distribution = distributions_[static_cast<size_t>(head)];
  if (!distribution.defined()) {
    distribution = counted(heads_.logits(hidden_, head)).logits[0];
  }
  return distribution;
}

Tensor MedusaDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  const std::vector<int64_t> depths = partial.depths();
  std::vector<Tensor> rows;
  rows.reserve(frontier.size());
  for (const int64_t node : frontier) {
    rows.push_back(distribution(depths[static_cast<size_t>(node)]));
  }
  return at::stack(rows);
}

ForwardResult MedusaDrafter::expand_on_device(const Draft& partial,
                                              std::span<const int64_t> frontier,
                                              const Tensor& /*tokens*/) {
  const std::vector<int64_t> depths = partial.depths();
  std::vector<Tensor> rows;
  ForwardResult found;
  for (const int64_t node : frontier) {
    const int64_t depth = depths[static_cast<size_t>(node)];
    if (rows.empty() || depth != depths[static_cast<size_t>(frontier[rows.size() - 1])]) {
      found = counted(heads_.device_logits(hidden_, depth));
    }
    rows.push_back(found.logits);
  }
  found.logits = rows.size() == 1 ? rows.front() : at::cat(rows);
  return found;
}

std::optional<DraftRoom> MedusaDrafter::begin_draft(const DraftContext& context) {
  hidden_ = last_hidden_state(context).contiguous();
  distributions_.assign(static_cast<size_t>(heads_.count), Tensor());
  return DraftRoom{.depth = heads_.count};
}

}  // namespace specdec
