#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace specdec {

/// Buckets of ages by powers of two: bucket 0 is age 0, bucket b > 0 holds ages from 2^(b - 1) to
/// 2^b - 1. The age of a key that a node sees is the node's position less the key's.
inline size_t age_bucket(int64_t age) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(age)));
}
/// The least age of a bucket.
inline int64_t first_age(size_t bucket) { return bucket == 0 ? 0 : int64_t{1} << (bucket - 1); }

/// What the forwards over a cache wrote and read: sums, whose size does not grow with time.
struct KvTrace {
  /// Sums of one layer.
  struct Layer {
    int64_t written = 0;             ///< tokens whose key and value were written
    int64_t nodes = 0;               ///< whose attention was computed
    std::vector<int64_t> keys = {};  ///< [ages] that nodes saw, by age_bucket
    /// [ages] attention weights of these keys, as a mean over query heads. All add up to `nodes`.
    std::vector<double> mass = {};
    bool operator==(const Layer&) const = default;
  };
  /// Sums of one page number over all layers.
  struct Page {
    int64_t written = 0;  ///< tokens
    int64_t read = 0;     ///< keys that nodes saw
    bool operator==(const Page&) const = default;
  };

  int64_t forwards = 0;
  std::vector<Layer> layers = {};             ///< a layer may read the keys of another one
  std::vector<std::vector<Page>> pages = {};  ///< [groups][pages], see KvView::group
  bool operator==(const KvTrace&) const = default;
};

/// What came between two states of one trace.
KvTrace operator-(const KvTrace& after, const KvTrace& before);

}  // namespace specdec
