#include "core/transformer/heads/draft_rows.h"

#include <ATen/ATen.h>

#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/kernels/linear_rows.h"
#include "core/transformer/transformer_model.h"

namespace specdec {
namespace {

Tensor ascending(const Tensor& ids) { return std::get<0>(ids.cpu().sort()); }

/// The tokens that ids lead to, [vocab] bool.
Tensor marked(const TensorSource& source, const Tensor& ids, int64_t vocab) {
  Tensor used = at::zeros({vocab}, at::kBool);
  bool* marks = used.mutable_data_ptr<bool>();
  const auto* values = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = values[i];
    const bool inside = id >= 0 && id < vocab;
    if (!inside || marks[id]) {
      throw WeightsError(fmt::format(
          "{}: d2t leads from draft token {} to token {} of the target, which {}. Each draft token "
          "stands for one of the target's {} (d2t holds the offsets).",
          source.folder().string(), i, id,
          inside ? "another draft token stands for already" : "does not exist", vocab));
    }
    marks[id] = true;
  }
  return used;
}

}  // namespace

Tensor load_draft_ids(TensorSource& source, int64_t draft_vocab, int64_t vocab) {
  if (!source.has("d2t") && draft_vocab == vocab) {
    return {};
  }
  const Tensor ids = source.load_integers("d2t", {draft_vocab}) + at::arange(draft_vocab);
  const Tensor used = marked(source, ids, vocab);
  if (source.has("t2d") && !at::equal(source.load_booleans("t2d", {vocab}), used)) {
    throw WeightsError(
        fmt::format("{}: t2d does not mark the tokens that d2t leads to; the file is damaged.",
                    source.folder().string()));
  }
  return ids.to(source.place().device);
}

void write_draft_ids(TensorWriter& writer, const Tensor& ids, int64_t vocab) {
  if (ids.defined()) {
    const Tensor tokens = ids.cpu();
    writer.add("d2t", tokens - at::arange(tokens.numel()));
    writer.add("t2d", at::zeros({vocab}, at::kBool).index_fill_(0, tokens, true));
  }
}

std::optional<DraftVocabulary> draft_vocabulary(const Tensor& ids, int64_t vocab,
                                                at::Device device) {
  if (!ids.defined()) {
    return std::nullopt;
  }
  const Tensor tokens = ascending(ids).to(at::kCPU, at::kInt).contiguous();
  const auto* first = tokens.const_data_ptr<int32_t>();
  return DraftVocabulary({first, first + tokens.numel()}, vocab, device);
}

DraftRows::DraftRows(const Tensor& ids, std::shared_ptr<const TransformerWeights> target)
    : target_(std::move(target)) {
  if (ids.defined()) {
    const Tensor rows = linear_rows(target_->head, ascending(ids).to(target_->place.device));
    PackOptions packing = head_packing(*target_);
    if (!packing.dtype && !is_in_blocks(target_->head.format())) {
      packing.dtype = scalar_type(target_->head.format());
    }
    rows_ = pack(rows, packing);
  }
}

void DraftRows::logits(Ops& ops, const Tensor& hidden, Tensor& logits) const {
  if (!rows_.defined()) {
    head_logits(ops, *target_, hidden, logits);
    return;
  }
  ops.linear(rows_, hidden, logits);
  if (const double cap = target_->config.final_soft_cap; cap > 0.0) {
    ops.soft_cap(logits, cap);
  }
}

Tensor DraftRows::logits(Ops& ops, const Tensor& hidden) const {
  const int64_t columns = rows_.defined() ? rows_.out() : target_->head.out();
  Tensor logits = ops.result(hidden.size(0), columns, hidden.options());
  this->logits(ops, hidden, logits);
  return logits;
}

}  // namespace specdec
