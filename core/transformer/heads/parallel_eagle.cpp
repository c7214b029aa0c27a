#include "core/transformer/heads/parallel_eagle.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/draft.h"
#include "core/error.h"
#include "core/transformer/heads/block_correction.h"

namespace specdec {
namespace {

/// Items that are evaluated at once.
constexpr int64_t kItemPiece = 256;

/// The head's cache holds what is drafted too, at most.
TransformerOptions with_room(TransformerOptions options, int64_t drafts) {
  options.max_length += drafts;
  return options;
}

}  // namespace

ParallelEagleModel::ParallelEagleModel(std::shared_ptr<const EagleHead> head,
                                       std::shared_ptr<const TransformerWeights> target,
                                       const KvStoreFactory& store,
                                       const TransformerOptions& options)
    : head_(std::move(head)),
      model_(make_eagle_model(head_, std::move(target), store,
                              with_room(options, head_->config.drafts))) {
  SPECDEC_CHECK(head_->config.version == EagleVersion::kPEagle, "a head of another kind");
}

void ParallelEagleModel::keep(TokenSpan committed, const Tensor& features) {
  const int64_t items = features.size(0);
  SPECDEC_CHECK(features.dim() == 2 && features.size(1) == feature_width() && items > 0 &&
                    length() + items + 1 == std::ssize(committed),
                "a block drafter keeps {} of {} committed tokens: features should be [n, {}]",
                length(), committed.size(), feature_width());
  for (int64_t done = 0; done < items; done += kItemPiece) {
    const int64_t count = std::min(kItemPiece, items - done);
    const auto tokens =
        committed.subspan(static_cast<size_t>(length()) + 1, static_cast<size_t>(count));
    first_ = model_
                 ->forward({.tokens = token_tensor(tokens),
                            .inputs = {.features = features.narrow(0, done, count)}},
                           {.logits = Logits::kLast, .draft_columns = true})
                 .logits;
    model_->commit(chain_path(count));
  }
  newest_ = committed.back();
}

void ParallelEagleModel::evaluate(Token newest, int64_t wanted) {
  SPECDEC_CHECK(wanted > 0 && wanted <= depth(), "{} drafts of a block of {}", wanted, depth());
  SPECDEC_CHECK(newest == newest_, "a block that begins with {}, and {} is the newest token",
                newest, newest_);
  logits_ = first_;
  if (wanted == 1) {
    return;
  }
  const std::vector<Token> masks(static_cast<size_t>(wanted - 1), head_->config.mask_token);
  const Tensor later =
      model_
          ->forward({.tokens = token_tensor(masks),
                     .inputs = {.features = head_->mask_features.expand({wanted - 1, -1})}},
                    {.draft_columns = true})
          .logits;
  model_->truncate(model_->length());
  logits_ = at::cat({first_, later});
}

Tensor ParallelEagleModel::logits(const Draft& partial, std::span<const int64_t> nodes) {
  return slot_rows(logits_, partial, nodes);
}

}  // namespace specdec
