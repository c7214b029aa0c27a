#pragma once
#include <memory>

#include "kv/forwarding_store.h"

namespace specdec {

/// Another store, whose forwards' writes and reads are counted by layer, page and age (KvTrace),
/// with the weights that attention gave to what it read. Changes no bit. On the CPU; attention
/// is computed once more in float64, which takes many times as long as the forward itself.
class TracingStore final : public ForwardingStore {
 public:
  /// `layers`: how many there are.
  TracingStore(std::unique_ptr<KvStore> store, int64_t layers);

  void extend(const NewNodes& nodes) override;
  KvView view(int64_t layer) const override;
  /// Counts what layers read whose view was the newest when their attention ran.
  std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) override;
  const KvTrace* trace() const override;

 private:
  class Recorder;
  class RecordingOps;
  std::shared_ptr<Recorder> recorder_;  ///< shared with the ops
};

}  // namespace specdec
