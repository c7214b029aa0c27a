#include "kv/cache_rows.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {

std::vector<int64_t> CacheRows::held() const {
  std::vector<int64_t> tokens(static_cast<size_t>(places()));
  for (const RowId row : names()) {
    tokens[static_cast<size_t>(place(row))] = held(row);
  }
  return tokens;
}

void CacheRows::find_spans(const NewNodes& nodes) {
  const auto fits_count = [&](std::span<const int64_t> numbers) {
    return numbers.empty() || std::ssize(numbers) == nodes.count;
  };
  SPECDEC_CHECK(nodes.count >= 0 && fits_count(nodes.rows) && fits_count(nodes.parents) &&
                    (nodes.tokens.empty() || std::ssize(nodes.tokens) == nodes.count),
                "extend: {} rows, {} parents and {} tokens for {} nodes", nodes.rows.size(),
                nodes.parents.size(), nodes.tokens.size(), nodes.count);
  spans_.clear();
  for (int64_t node = 0; node < nodes.count; ++node) {
    const RowId row = nodes.rows.empty() ? 0 : nodes.rows[static_cast<size_t>(node)];
    if (!spans_.empty() && spans_.back().row == row) {
      ++spans_.back().end;
      continue;
    }
    const bool seen = std::any_of(spans_.begin(), spans_.end(),
                                  [row](const Span& span) { return span.row == row; });
    SPECDEC_CHECK(!seen, "extend: node {} is apart from the others of row {}", node, row);
    spans_.push_back({row, place(row), node, node + 1});
  }
  check_parents(nodes);
}

void CacheRows::check_parents(const NewNodes& nodes) const {
  for (const Span& span : spans_) {
    const int64_t held = pending(span.row);
    for (int64_t node = span.begin; node < span.end; ++node) {
      const int64_t index = held + node - span.begin;
      const int64_t parent = parent_of(nodes, node, index);
      SPECDEC_CHECK(parent >= -1 && parent < index,
                    "extend: pending node {} of row {} cannot follow node {}", index, span.row,
                    parent);
    }
  }
}

void CacheRows::add_nodes(const NewNodes& nodes) {
  for (const Span& span : spans_) {
    Row& row = rows_[span.row];
    for (int64_t node = span.begin; node < span.end; ++node) {
      const int64_t parent = parent_of(nodes, node, std::ssize(row.pending));
      const int64_t position =
          parent < 0 ? row.length : row.pending[static_cast<size_t>(parent)].position + 1;
      row.pending.push_back({parent, position});
    }
  }
}

void CacheRows::undo_nodes() {
  for (const Span& span : spans_) {
    auto& pending = rows_[span.row].pending;
    pending.resize(pending.size() - static_cast<size_t>(span.end - span.begin));
  }
  spans_.clear();
}

void CacheRows::check_path(RowId row, std::span<const int64_t> path) const {
  const Row& kept = rows_[row];
  int64_t last = -1;
  for (const int64_t node : path) {
    SPECDEC_CHECK(node >= 0 && node < pending(row),
                  "commit: row {} has {} pending nodes, not node {}", row, pending(row), node);
    const int64_t parent = kept.pending[static_cast<size_t>(node)].parent;
    SPECDEC_CHECK(parent == last,
                  "commit: not a path from the root: node {} of row {} follows {}, not {}", node,
                  row, parent, last);
    last = node;
  }
}

PageRange CacheRows::page_range(const Span& span) const {
  const int64_t first = held(span.row);
  return {span.place, first / page_size_, page_count(first + span.end - span.begin)};
}

}  // namespace specdec
