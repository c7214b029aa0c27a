#include "core/transformer/forward_outputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/transformer/forward_parts.h"

namespace specdec {
namespace {

at::TensorOptions result_options(const TransformerWeights& weights) {
  return at::TensorOptions(weights.compute_dtype()).device(weights.place.device);
}

Tensor first_rows(const Tensor& all, int64_t rows) {
  return all.size(0) == rows ? all : all.narrow(0, 0, rows);
}

}  // namespace

ForwardOutputs::ForwardOutputs(Ops& ops, const TransformerWeights& weights,
                               const ForbiddenTokens& forbidden)
    : ops_(ops),
      weights_(weights),
      forbidden_(forbidden),
      logits_memory_(weights.head.out(), result_options(weights)),
      best_memory_(3, result_options(weights).dtype(at::kInt)),
      hidden_memory_(weights.config.hidden_size, result_options(weights)),
      scored_memory_(weights.config.hidden_size, result_options(weights)) {}

void ForwardOutputs::reserve(const ForwardOptions& options, int64_t nodes, int64_t scored) {
  release();  // that of a forward that failed
  for (const int64_t layer : options.capture_layers) {
    if (captured_.size() == captured_memory_.size()) {
      captured_memory_.emplace_back(weights_.config.hidden_size, result_options(weights_));
    }
    captured_.push_back({layer, captured_memory_[captured_.size()].rows(nodes)});
  }
  if (options.hidden == Hidden::kAll) {
    hidden_ = hidden_memory_.rows(nodes);
  }
  if (options.logits != Logits::kNone) {
    scored_ = hidden_.defined() && scored == nodes ? hidden_ : scored_memory_.rows(scored);
    logits_ = logits_memory_.rows(scored);
    if (options.logits_use == LogitsUse::kBest && ops_.finds_best()) {
      best_ = best_memory_.rows(scored);
    }
  }
}

bool ForwardOutputs::are_kept() const {
  const auto is_kept = [](const Tensor& memory) {
    return !memory.defined() || memory.size(0) <= ResultMemory::kMostRows;
  };
  return is_kept(hidden_) && is_kept(scored_) && is_kept(logits_) &&
         std::all_of(captured_.begin(), captured_.end(),
                     [&](const Captured& captured) { return is_kept(captured.memory); });
}

void ForwardOutputs::add_addresses(GraphKey& key) const {
  add_address(hidden_, key);
  add_address(scored_, key);
  add_address(logits_, key);
  add_address(best_, key);
  key.push_back(logits_.defined() ? logits_.size(0) : 0);
  key.push_back(std::ssize(captured_));
  for (const Captured& captured : captured_) {
    key.push_back(captured.layer);
    add_address(captured.memory, key);
  }
}

void ForwardOutputs::capture(int64_t layer, const Tensor& residual) {
  for (Captured& captured : captured_) {
    if (captured.layer == layer) {
      ops_.copy(residual, captured.memory);
    }
  }
}

void ForwardOutputs::write(const Tensor& residual, const Tensor& scored) {
  if (hidden_.defined()) {
    final_norm(residual, hidden_);
  }
  if (!logits_.defined()) {
    return;
  }
  Tensor states = first_rows(scored_, scored.size(0));
  if (!states.is_same(hidden_)) {
    final_norm(scored, states);
  }
  Tensor logits = this->logits(scored.size(0));
  head_logits(ops_, weights_, states, logits);
  ops_.forbid(forbidden_, logits);
  if (best_.defined()) {
    ops_.find_best(logits, best_);
  }
}

Tensor ForwardOutputs::logits(int64_t rows) const { return first_rows(logits_, rows); }

void ForwardOutputs::give(const ForwardOptions& options, ForwardResult& result) {
  if (best_.defined()) {
    result.best = read_best(best_);
    result.read_backs += {1, kBestTokenBytes * std::ssize(result.best)};
  } else if (logits_.defined()) {
    result.logits = logits_;
    result.sampler = options.logits_use == LogitsUse::kSampler ? ops_.sampler() : nullptr;
  }
  result.final_hidden = options.hidden == Hidden::kScored ? scored_ : hidden_;
  for (Captured& captured : captured_) {
    result.captured.push_back(std::move(captured.memory));
  }
  release();
}

void ForwardOutputs::release() {
  for (Tensor* memory : {&hidden_, &scored_, &logits_, &best_}) {
    memory->reset();
  }
  captured_.clear();
}

void ForwardOutputs::final_norm(const Tensor& residual, Tensor& hidden) const {
  if (weights_.final_norm.defined()) {
    ops_.rms_norm(residual, weights_.final_norm, weights_.config.rms_norm_eps, hidden);
  } else {
    ops_.copy(residual, hidden);
  }
}

}  // namespace specdec
