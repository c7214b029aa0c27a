#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/kernels/kv_view.h"
#include "kv/mirrored_ints.h"

namespace specdec {

/// Entries that a forward's tables need.
struct TableSizes {
  int64_t nodes = 0;
  int64_t paths = 0;
  int64_t rows = 0;
  int64_t pages = 0;  ///< of the row that has most
};

/// The tables of a forward in one block (MirroredInts). The host writes host(); kernels read
/// device().
class TableBlock {
 public:
  struct Options {
    at::Device device = at::kCPU;
    bool mirror = false;       ///< two blocks on the CPU too
    bool own_angles = false;   ///< angles are not the positions
    int64_t groups = 1;        ///< of layers, with page tables of their own
    bool pages_apart = false;  ///< page tables go up by upload_pages() and upload_rows() alone
  };

  explicit TableBlock(const Options& options)
      : options_(options), block_(options.device, options.mirror) {}

  /// Makes room. Where a table was too small, both blocks are new, and their contents lost.
  void reserve(const TableSizes& sizes);
  /// Says how many nodes the tables hold, and that all their positions lie below `longest`, and
  /// lets the device see what was written within the sizes that were reserved last: what lies
  /// behind them in the page tables is not copied.
  void upload(int64_t nodes, int64_t longest);
  /// Lets the device see what a group's page table of a row was written to since.
  void upload_pages(int64_t row, int64_t group) const;
  /// Uploads the page tables of all groups of the rows from `first` to `last`, in one copy.
  void upload_rows(int64_t first, int64_t last) const;

  const BatchTables& host() const { return host_; }
  const BatchTables& device() const { return device_; }

 private:
  BatchTables lay_out(const Tensor& block) const;

  int64_t used_entries() const;

  Options options_;
  TableSizes capacity_;
  TableSizes used_;
  MirroredInts block_;
  BatchTables host_;
  BatchTables device_;
};

}  // namespace specdec
