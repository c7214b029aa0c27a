#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/memory_parts.h"
#include "core/types.h"

namespace specdec {

using at::Tensor;

/// Keys and values of a layer, each [kv_heads, tokens, width], as the cache stores them (kv_width
/// of core/kernels/kv_format.h).
struct LayerKeyValues {
  Tensor keys;
  Tensor values;
};

/// Keys and values of the tokens that a row kept, apart from the row: later changes of the row, or
/// its end, do not change them. Any thread may read it, copy it and let it go; a row is restored
/// from it by the thread of that row's store.
class KvSnapshot {
 public:
  virtual ~KvSnapshot() = default;
  KvSnapshot() = default;
  KvSnapshot(const KvSnapshot&) = delete;
  KvSnapshot& operator=(const KvSnapshot&) = delete;

  /// Tokens.
  virtual int64_t length() const = 0;
  /// Fewest tokens, beside none, that a row can be restored to: more where the cache had given back
  /// what lay outside its layers' windows.
  virtual int64_t shortest_length() const = 0;
  /// The largest length that a row can be restored to, at most `length`: that, or 0.
  int64_t rewindable_to(int64_t length) const { return length < shortest_length() ? 0 : length; }
  /// Memory that the snapshot keeps in use, in pieces that other snapshots may share.
  virtual MemoryParts parts() const = 0;
  /// Bytes of parts(); those that other snapshots hold too are counted.
  int64_t bytes() const { return bytes_of(parts()); }
  /// Copies in the host's memory, of the layers with keys and values of their own, in order, then
  /// of their ExactPages, where there are any; zeros where the cache had given a token back.
  virtual std::vector<LayerKeyValues> copy() const = 0;
};

/// Tokens of a row, from `begin` on.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = -1;  ///< -1 = all that are kept
};

/// A snapshot that owns its numbers, for any store with such layers.
class KvCopies final : public KvSnapshot {
 public:
  /// Layers of `length` tokens, in the host's memory.
  KvCopies(std::vector<LayerKeyValues> layers, int64_t length, int64_t shortest_length = 0);

  int64_t length() const override { return length_; }
  int64_t shortest_length() const override { return shortest_length_; }
  MemoryParts parts() const override;
  std::vector<LayerKeyValues> copy() const override { return layers_; }
  const std::vector<LayerKeyValues>& layers() const { return layers_; }

 private:
  std::vector<LayerKeyValues> layers_;
  int64_t length_;
  int64_t shortest_length_;
};

class Internals;

/// Snapshots of a model's rows (LanguageModel::snapshots).
class KvSnapshots {
 public:
  virtual ~KvSnapshots() = default;
  /// Names all that keys and values depend on beside the tokens, in 16 hex digits: weights, their
  /// formats, adapters, the format of activations and cache, the device. A row of a model may be
  /// restored from what a model of the same key held; the bits are then those of its own forward.
  virtual std::string kv_key() const = 0;
  /// What the row has kept. It shares pages with the row where the store has room for that. Throws
  /// InternalError where nodes are pending.
  virtual std::shared_ptr<const KvSnapshot> kv_snapshot(RowId row = 0) = 0;
  /// The row holds the first `length` tokens of the snapshot instead of its own. Throws Error when
  /// they do not fit; the row is empty then. InternalError, which changes nothing, for a length
  /// that the snapshot is not rewindable to or does not hold; InternalError for layers of another
  /// geometry.
  virtual void kv_restore(const KvSnapshot& snapshot, int64_t length, RowId row = 0) = 0;
  /// The row, without pending nodes, keeps more tokens, to `length`: what row 0 of a model of the
  /// same layers has kept of them, rounded as this cache does. So a cache in a format follows an
  /// exact one without a forward. Throws Error where they do not fit, and keeps those before;
  /// InternalError where the other has not so many.
  virtual void kv_follow(const Internals& other, int64_t length, RowId row = 0) = 0;
};

}  // namespace specdec
