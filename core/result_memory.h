#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>

namespace specdec {

using at::Tensor;

/// Memory of a forward's results, matrices of one width, which their readers own: it is handed out
/// again when nobody holds it or a view of it any more, so one that is kept stays as it is. Readers
/// do not change a result's shape or storage in place. 64 rows of 262,144
/// logits are 67 MB, which would be fresh pages in each forward.
class ResultMemory {
 public:
  ResultMemory(int64_t width, const at::TensorOptions& options)
      : width_(width), options_(options) {}

  /// Most rows that are handed out again: more are a prefill's, once.
  static constexpr int64_t kMostRows = 64;
  /// [rows, width], of any content. Allocates nothing where as many rows were asked for before, and
  /// at most one result of that number is still held.
  Tensor rows(int64_t rows);

 private:
  struct Buffer {
    /// Whether nobody else holds the memory or a view of it.
    bool is_unused() const;
    /// Called once the buffer is unused: what its readers did, on any thread, happens before what
    /// follows. is_unused only looks at counts of references, which orders nothing.
    void acquire() const;

    Tensor memory;                      ///< [numbers]
    std::map<int64_t, Tensor> by_rows;  ///< [rows, width] views of it that were handed out
  };

  int64_t width_;
  at::TensorOptions options_;
  std::array<Buffer, 2> buffers_;  ///< of the newest result, and the one that it replaces
};

}  // namespace specdec
