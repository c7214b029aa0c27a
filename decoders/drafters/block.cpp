#include "decoders/drafters/block.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"

namespace specdec {

BlockDrafter::BlockDrafter(std::unique_ptr<BlockModel> model, BlockDrafterOptions options)
    : DistributionDrafter(options.sample),
      model_(std::move(model)),
      target_features_(std::move(options.capture_layers)),
      confidence_threshold_(options.confidence_threshold) {}

void BlockDrafter::check(const LanguageModel& target) const {
  if (target.vocab_size() != model_->vocab_size()) {
    throw ConfigError(fmt::format(
        "the head was trained for another model, with a vocabulary of {}; this target has {}. Use "
        "a head that was trained for this target",
        model_->vocab_size(), target.vocab_size()));
  }
  const Internals* internals = target.internals();
  const std::vector<int64_t>& layers = target_features_.capture_layers();
  if (internals == nullptr) {
    return;
  }
  for (const int64_t layer : layers) {
    if (layer < 0 || layer >= internals->num_layers()) {
      throw ConfigError(fmt::format(
          "the head is fed the residual stream after layer {}, and the target has layers 0 to {}. "
          "Use a head that was trained for this target",
          layer, internals->num_layers() - 1));
    }
  }
  if (internals->hidden_size() * std::ssize(layers) != model_->feature_width()) {
    throw ConfigError(fmt::format(
        "the head was trained for another model: it is fed {} numbers of a token, and {} layers of "
        "this target give {}. Use a head that was trained for this target",
        model_->feature_width(), layers.size(), internals->hidden_size() * std::ssize(layers)));
  }
}

void BlockDrafter::reset() {
  model_->reset();
  target_features_.reset();
}

void BlockDrafter::catch_up(const DraftContext& context) {
  const Tensor features = target_features_.take();
  if (!features.defined()) {
    return;
  }
  const bool reads_prompt = model_->length() == 0;
  const ScopedSeconds timer(reads_prompt ? context.prompt_seconds : nullptr);
  model_->keep(context.committed, features);
}

bool BlockDrafter::ends(const Draft& partial, int64_t node) {
  if (confidence_threshold_ <= 0.0) {
    return false;
  }
  const Tensor confidence = model_->confidence(partial, {&node, 1});
  SPECDEC_CHECK(confidence.defined(), "a threshold of a head that predicts no confidence");
  return 1.0 / (1.0 + std::exp(-confidence.item<double>())) < confidence_threshold_;
}

std::optional<DraftRoom> BlockDrafter::begin_draft(const DraftContext& context) {
  target_features_.collect(context);
  catch_up(context);
  const int64_t depth = std::min(model_->depth(), context.max_depth);
  model_->evaluate(context.committed.back(), depth);
  return DraftRoom{.depth = depth};
}

}  // namespace specdec
