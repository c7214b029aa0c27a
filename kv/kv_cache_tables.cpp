// The tables of a KvCache's forwards: what they take, and what is written to them.
#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "kv/kv_cache.h"

namespace specdec {
namespace {

int32_t* entries(const Tensor& table) { return table.mutable_data_ptr<int32_t>(); }

}  // namespace

/// What new node number `node` follows, which is pending node number `index` of its row.
int64_t KvCache::parent_of(const NewNodes& nodes, int64_t node, int64_t index) {
  return nodes.parents.empty() ? index - 1 : nodes.parents[static_cast<size_t>(node)];
}

/// Entries that a row's page tables take.
int64_t KvCache::most_pages(RowId row) const {
  int64_t most = 0;
  for (const PageGroup& group : groups_->all()) {
    most = std::max(most, std::ssize(group.table.pages(place(row))));
  }
  return most;
}

/// Slots in the paths of new nodes: a node has one unless all the row's pending nodes up to
/// it are a chain.
int64_t KvCache::path_slots(const NewNodes& nodes) {
  int64_t slots = 0;
  for (const RowSpan& span : spans_) {
    const int64_t held = pending(span.row);
    const auto parent_at = [&](int64_t index) {
      return index < held ? rows_[span.row].pending[static_cast<size_t>(index)].parent
                          : parent_of(nodes, span.begin + index - held, index);
    };
    depths_.clear();
    for (int64_t index = 0; index < held; ++index) {
      const Node& node = rows_[span.row].pending[static_cast<size_t>(index)];
      depths_.push_back(node.position - length(span.row));
    }
    for (int64_t node = span.begin; node < span.end; ++node) {
      const auto index = static_cast<int64_t>(depths_.size());
      const int64_t parent = parent_of(nodes, node, index);
      const int64_t depth = parent < 0 ? 0 : depths_[static_cast<size_t>(parent)] + 1;
      depths_.push_back(depth);
      if (depth != index) {
        int64_t above = parent;  // the last one at the slot of its position
        while (above >= 0 && depths_[static_cast<size_t>(above)] != above) {
          above = parent_at(above);
        }
        check_branch(length(span.row) + above + 1, depth - above);
        slots += depth + 1;
      }
    }
  }
  return slots;
}

void KvCache::reserve_tables(const NewNodes& nodes) {
  int64_t pages = 0;
  for (const RowSpan& span : spans_) {
    pages = std::max({pages, page_range(span).end, most_pages(span.row)});
  }
  tables_.reserve({.nodes = nodes.count,
                   .paths = std::max<int64_t>(1, path_slots(nodes)),
                   .rows = static_cast<int64_t>(rows_.places()),
                   .pages = pages});
}

/// The new nodes are pending, and in the tables.
void KvCache::add_nodes(const NewNodes& nodes) {
  path_end_ = 0;
  int64_t longest = 0;
  for (const RowSpan& span : spans_) {
    const int64_t first = pending(span.row);
    for (int64_t i = span.begin; i < span.end; ++i) {
      add_node(span, parent_of(nodes, i, first + i - span.begin), i);
    }
    fill_row_tables(tables_.host(), span.place, span.row);
    longest = std::max(longest, length(span.row) + pending(span.row));
  }
  std::copy(nodes.tokens.begin(), nodes.tokens.end(), entries(tables_.host().tokens));
  tables_.upload(nodes.count, longest);
}

void KvCache::add_node(const RowSpan& span, int64_t parent, int64_t index) {
  Row& owner = rows_[span.row];
  const auto node = static_cast<int64_t>(owner.pending.size());
  const int64_t position =
      parent < 0 ? owner.length : owner.pending[static_cast<size_t>(parent)].position + 1;
  owner.pending.push_back({parent, position});
  const BatchTables& tables = tables_.host();
  entries(tables.rows)[index] = static_cast<int32_t>(span.place);
  entries(tables.slots)[index] = static_cast<int32_t>(owner.length + node);
  entries(tables.positions)[index] = static_cast<int32_t>(position);
  if (position == owner.length + node) {
    entries(tables.path_starts)[index] = -1;
    return;
  }
  entries(tables.path_starts)[index] = static_cast<int32_t>(path_end_);
  path_end_ += position - owner.length + 1;
  int32_t* slot = entries(tables.paths) + path_end_;
  for (int64_t above = node; above >= 0; above = owner.pending[static_cast<size_t>(above)].parent) {
    *--slot = static_cast<int32_t>(owner.length + above);
  }
}

/// Writes a row's tables at an entry of a forward's.
void KvCache::fill_row_tables(const BatchTables& tables, int64_t entry, RowId row) const {
  entries(tables.lengths)[entry] = static_cast<int32_t>(length(row));
  if (renumbers()) {
    return;  // each layer's are written once its pages are in memory
  }
  int32_t* to = entries(tables.page_tables) + entry * tables.page_tables.stride(0);
  for (const PageGroup& group : groups_->all()) {
    const auto pages = group.table.pages(place(row));
    std::copy(pages.begin(), pages.end(), to);
    to += tables.page_tables.stride(1);
  }
}

BatchTables KvCache::readers(RowId row, int64_t nodes, int64_t angle) const {
  SPECDEC_CHECK(length(row) > 0 && nodes > 0, "readers: {} nodes of row {}, which holds {} tokens",
                nodes, row, length(row));
  readers_.reserve({.nodes = nodes, .paths = 1, .rows = 1, .pages = most_pages(row)});
  const BatchTables& tables = readers_.host();
  const auto all = [nodes](const Tensor& table, int64_t value) {
    std::fill_n(entries(table), nodes, static_cast<int32_t>(value));
  };
  all(tables.rows, 0);
  all(tables.slots, length(row));
  all(tables.positions, length(row) - 1);
  all(tables.angles, angle);
  all(tables.path_starts, -1);
  fill_row_tables(tables, 0, row);
  readers_.upload(nodes, length(row));
  read_row_ = row;
  return readers_.device();
}

}  // namespace specdec
