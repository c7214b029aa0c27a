#include "core/row_view.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {

ForwardResult RowView::forward(const TokenBatch& batch, const ForwardOptions& options) {
  TokenBatch own_batch = batch;
  if (own_batch.rows.empty()) {
    const Tensor& nodes =
        batch.inputs.embeddings.defined() ? batch.inputs.embeddings : batch.tokens;
    own_batch.rows.assign(static_cast<size_t>(nodes.size(0)), row_);
  } else {
    std::replace(own_batch.rows.begin(), own_batch.rows.end(), RowId{0}, row_);
  }
  return model_.forward(own_batch, options);
}

void RowView::close(RowId row) {
  SPECDEC_CHECK(own(row) != row_, "a view cannot close its own row {}", row_);
  model_.close(row);
}

const Internals* RowView::internals() const {
  return model_.internals() == nullptr ? nullptr : this;
}

KvSnapshots* RowView::snapshots() { return model_.snapshots() == nullptr ? nullptr : this; }

}  // namespace specdec
