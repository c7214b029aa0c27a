#include "kv/table_block.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace specdec {
namespace {

constexpr int64_t kCacheLine = 16;  // entries; each table begins at one

int64_t whole_lines(int64_t entries) {
  return (entries + kCacheLine - 1) / kCacheLine * kCacheLine;
}

/// A capacity that holds `needed`, so that growing step by step is rare.
int64_t grown(int64_t capacity, int64_t needed, int64_t smallest) {
  return needed <= capacity ? capacity : std::max({needed, 2 * capacity, smallest});
}

/// Tables cut from a block one after the other.
struct Cutter {
  const Tensor& block;
  int64_t end = 0;

  Tensor next(int64_t entries) {
    const int64_t begin = end;
    end += whole_lines(entries);
    return block.narrow(0, begin, entries);
  }
};

bool exceeds(const TableSizes& needed, const TableSizes& capacity) {
  return needed.nodes > capacity.nodes || needed.paths > capacity.paths ||
         needed.rows > capacity.rows || needed.pages > capacity.pages;
}

}  // namespace

void TableBlock::reserve(const TableSizes& sizes) {
  used_ = sizes;
  if (!exceeds(sizes, capacity_)) {
    return;
  }
  const TableSizes larger{.nodes = grown(capacity_.nodes, sizes.nodes, 32),
                          .paths = grown(capacity_.paths, sizes.paths, 64),
                          .rows = grown(capacity_.rows, sizes.rows, 1),
                          .pages = grown(capacity_.pages, sizes.pages, 16)};
  const int64_t node_tables = options_.own_angles ? 6 : 5;
  const int64_t entries = node_tables * whole_lines(larger.nodes) + whole_lines(larger.paths) +
                          whole_lines(larger.rows) +
                          whole_lines(larger.rows * options_.groups * larger.pages);
  block_.allocate(entries);
  capacity_ = larger;
  host_ = lay_out(block_.host());
  device_ = block_.is_twice() ? lay_out(block_.device()) : host_;
}

void TableBlock::upload(int64_t nodes, int64_t longest) {
  for (BatchTables* tables : {&host_, &device_}) {
    tables->nodes = nodes;
    tables->longest = longest;
  }
  if (block_.size() > 0) {
    block_.upload(used_entries());
  }
}

void TableBlock::upload_pages(int64_t row, int64_t group) const {
  block_.upload(used_.pages, host_.page_tables.storage_offset() +
                                 (row * options_.groups + group) * capacity_.pages);
}

void TableBlock::upload_rows(int64_t first, int64_t last) const {
  const int64_t tables = (last + 1 - first) * options_.groups;
  block_.upload((tables - 1) * capacity_.pages + used_.pages,
                host_.page_tables.storage_offset() + first * options_.groups * capacity_.pages);
}

/// The page tables lie last.
int64_t TableBlock::used_entries() const {
  const int64_t before = host_.page_tables.storage_offset();
  return used_.rows == 0 || options_.pages_apart
             ? before
             : before + (used_.rows * options_.groups - 1) * capacity_.pages + used_.pages;
}

BatchTables TableBlock::lay_out(const Tensor& block) const {
  Cutter cutter{block};
  BatchTables tables;
  tables.rows = cutter.next(capacity_.nodes);
  tables.slots = cutter.next(capacity_.nodes);
  tables.positions = cutter.next(capacity_.nodes);
  tables.angles = options_.own_angles ? cutter.next(capacity_.nodes) : tables.positions;
  tables.path_starts = cutter.next(capacity_.nodes);
  tables.tokens = cutter.next(capacity_.nodes);
  tables.paths = cutter.next(capacity_.paths);
  tables.lengths = cutter.next(capacity_.rows);
  tables.page_tables = cutter.next(capacity_.rows * options_.groups * capacity_.pages)
                           .view({capacity_.rows, options_.groups, capacity_.pages});
  return tables;
}

}  // namespace specdec
