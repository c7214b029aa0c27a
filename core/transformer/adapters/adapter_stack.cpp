#include "core/transformer/adapters/adapter_stack.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

/// Matrices of one base matrix's pairs, fused: all A below one another, the B beside one another in
/// the rows that they add to.
AdapterStack::Update fuse(const Linear& matrix,
                          const std::vector<std::pair<const LoraPair*, double>>& pairs,
                          const Placement& place) {
  std::vector<Tensor> a;
  int64_t ranks = 0;
  for (const auto& [pair, scale] : pairs) {
    a.push_back(pair->a);
    ranks += pair->a.size(0);
  }
  Tensor b = at::zeros({matrix.out(), ranks}, pairs.front().first->b.options());
  int64_t column = 0;
  for (const auto& [pair, scale] : pairs) {
    b.narrow(0, pair->first, pair->b.size(0))
        .narrow(1, column, pair->b.size(1))
        .copy_(pair->b * scale);
    column += pair->b.size(1);
  }
  const WeightFormat format = weight_format(b.scalar_type());
  AdapterStack::Update update = {Linear(at::cat(a), format, {}, place),
                                 Linear(b, format, {}, place)};
  update.a.arrange();
  update.b.arrange();
  return update;
}

}  // namespace

AdapterStack::AdapterStack(std::shared_ptr<const TransformerWeights> base)
    : base_(std::move(base)) {}

void AdapterStack::push(ScaledAdapter adapter) {
  if (adapter.adapter->base != base_) {
    throw Error(
        fmt::format("the adapter {} was read for other weights than this model's: read it again "
                    "with the weights of this one",
                    adapter.adapter->name));
  }
  if (!std::isfinite(adapter.scale)) {
    throw Error(fmt::format("the scale of the adapter {} is {}, no finite number",
                            adapter.adapter->name, adapter.scale));
  }
  adapters_.push_back(std::move(adapter));
  update();
}

void AdapterStack::pop() {
  SPECDEC_CHECK(!adapters_.empty(), "pop: there is no adapter");
  adapters_.pop_back();
  update();
}

void AdapterStack::clear() {
  adapters_.clear();
  update();
}

std::string AdapterStack::fingerprint() const {
  if (adapters_.empty()) {
    return base_->fingerprint;
  }
  std::string text = base_->fingerprint;
  for (const ScaledAdapter& one : adapters_) {
    text += fmt::format(";{}*{}", one.adapter->fingerprint, one.scale);
  }
  return fmt::format("{:016x}", hash_bytes(0, text.data(), text.size()));
}

void AdapterStack::check_draft(const TransformerWeights& weights, int64_t layers) const {
  SPECDEC_CHECK(&weights == base_.get(),
                "forward: the draft's adapters were read for other weights than the model's");
  SPECDEC_CHECK(layers < std::ssize(weights.plan),
                "forward: a draft by all {} layers cannot have adapters of its own: push them on a "
                "model of its own",
                layers);
}

void AdapterStack::update() {
  const c10::InferenceMode usable_everywhere(false);
  std::unordered_map<const Linear*, std::vector<std::pair<const LoraPair*, double>>> pairs;
  for (const ScaledAdapter& one : adapters_) {
    for (const LoraPair& pair : one.adapter->pairs) {
      pairs[pair.matrix].emplace_back(&pair, one.scale);
    }
  }
  updates_.clear();
  for (const auto& [matrix, its_pairs] : pairs) {
    updates_.emplace(matrix, fuse(*matrix, its_pairs, base_->place));
  }
}

}  // namespace specdec
