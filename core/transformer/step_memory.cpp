#include "core/transformer/step_memory.h"

#include <bit>

namespace specdec {

Ops& StepMemory::begun(KeptResults& results) {
  results.begin();
  return results;
}

StepMemory& StepMemories::of(int64_t nodes) {
  const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(nodes)));
  return by_room_.try_emplace(room, ops_, room).first->second;
}

Tensor followed_features(Ops& ops, const Tensor& features, const Tensor& parents) {
  return parents.defined() ? ops.gather_rows(features, parents) : features;
}

}  // namespace specdec
