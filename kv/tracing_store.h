#pragma once
#include <memory>
#include <span>
#include <string>

#include "kv/forwarding_store.h"
#include "kv/trace_file.h"

namespace specdec {

/// Another store, whose forwards' writes and reads are counted by layer, page and age (KvTrace),
/// with the weights that attention gave to what it read. On demand each write, read and change of a
/// row becomes an event of a TraceFile, too. Changes no bit. Attention is computed once more in
/// float64, on the host, which takes many times as long as the forward itself; of a device, each
/// layer's tables, queries and keys are copied there, and forwards run without graphs.
class TracingStore final : public ForwardingStore {
 public:
  /// `layers`: how many there are. `events`: where events go; nullptr = nowhere.
  TracingStore(std::unique_ptr<KvStore> store, int64_t layers,
               std::unique_ptr<TraceFile> events = nullptr);

  void extend(const NewNodes& nodes) override;
  void undo_extend() override;
  void commit(RowId row, std::span<const int64_t> path) override;
  void truncate(RowId row, int64_t length) override;
  RowId open() override;
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  void restore(RowId row, const KvSnapshot& snapshot, int64_t length) override;
  void append(RowId row, int64_t count, const NumbersOfLayer& numbers) override;
  KvView view(int64_t layer) const override;
  /// Counts what layers read whose view was the newest when their attention ran.
  std::shared_ptr<Ops> observed(std::shared_ptr<Ops> ops) override;
  const KvTrace* trace() const override;

 private:
  class Recorder;
  class RecordingOps;
  /// What events of rows have: a row's name and kept tokens.
  std::string state_of(RowId row) const;
  void note_row(const char* event, RowId row);
  std::shared_ptr<Recorder> recorder_;  ///< shared with the ops
};

}  // namespace specdec
