#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "core/kernels/attention.h"

namespace specdec {

/// A key that a node sees.
struct SeenKey {
  int64_t node;
  int64_t page;  ///< number of the page that it lies in, beside an exact one too
  int64_t position;
  int64_t age;    ///< position of the node less that of the key
  double weight;  ///< mean over query heads of its attention weight
};

/// Calls `use` for each key that paged_attention with these arguments reads, node by node and
/// by ascending position, with the weight that the softmax gives it: computed in float64 from the
/// queries and from the keys as they are stored. Plain loops, many times slower than attention
/// itself. Of a device the queries, the tables and the keys are copied to the host.
void attention_mass(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                    const std::function<void(const SeenKey&)>& use);

/// Tables in the host's memory: the same where they lie there, else copies.
BatchTables host_tables(const BatchTables& tables);

/// Keys in the host's memory as view.keys has them, of the pages that rows of the forward have up
/// to their newest tokens; the other pages mean nothing. `tables`: those of the view, on the host.
Tensor copy_read_keys(const KvView& view, const BatchTables& tables);

}  // namespace specdec
