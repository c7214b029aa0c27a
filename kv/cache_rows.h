#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv_store.h"
#include "core/named_rows.h"

namespace specdec {

/// Pages of a row, from index `first` to `end`.
struct PageRange {
  int64_t place;  ///< of the row, in tables
  int64_t first;
  int64_t end;
};

/// The rows of a paged cache: how many tokens each keeps, its tree of pending nodes, and which of
/// these are the newest extend's. Which pages they lie in, it does not know.
class CacheRows {
 public:
  struct Node {
    int64_t parent;  ///< -1 = the last kept token
    int64_t position;
  };
  struct Row {
    int64_t length = 0;
    int64_t shortest = 0;  ///< fewest tokens, beside none, that it can be truncated to
    std::vector<Node> pending = {};
  };
  /// The new nodes of one row: begin to end of all.
  struct Span {
    RowId row;
    int64_t place;  ///< of the row, in tables
    int64_t begin;
    int64_t end;
  };

  explicit CacheRows(int64_t page_size) : page_size_(page_size) {}

  RowId open() { return rows_.open(); }
  void close(RowId row) { rows_.close(row); }
  bool is_open(RowId row) const { return rows_.is_open(row); }
  std::vector<RowId> names() const { return rows_.names(); }
  int64_t place(RowId row) const { return static_cast<int64_t>(rows_.place(row)); }
  int64_t places() const { return static_cast<int64_t>(rows_.places()); }
  Row& operator[](RowId row) { return rows_[row]; }
  const Row& operator[](RowId row) const { return rows_[row]; }
  int64_t length(RowId row) const { return rows_[row].length; }
  int64_t pending(RowId row) const { return std::ssize(rows_[row].pending); }
  /// Kept tokens and pending nodes of a row.
  int64_t held(RowId row) const { return length(row) + pending(row); }
  /// Tokens and nodes in each place, [places]; 0 where no row is open.
  std::vector<int64_t> held() const;

  /// Finds the spans of new nodes, which become the newest extend's. Throws InternalError for nodes
  /// of a row that are apart, a parent that does not exist and a row that is not open.
  void find_spans(const NewNodes& nodes);
  std::span<const Span> spans() const { return spans_; }
  /// No row was extended last.
  void forget_spans() { spans_.clear(); }
  /// The nodes of the spans are pending.
  void add_nodes(const NewNodes& nodes);
  /// Forgets the nodes of the spans, and these.
  void undo_nodes();
  /// What new node number `node` follows, which is pending node number `index` of its row.
  static int64_t parent_of(const NewNodes& nodes, int64_t node, int64_t index) {
    return nodes.parents.empty() ? index - 1 : nodes.parents[static_cast<size_t>(node)];
  }
  /// Throws InternalError where these pending nodes are no path from the root.
  void check_path(RowId row, std::span<const int64_t> path) const;

  int64_t page_size() const { return page_size_; }
  /// Pages that so many tokens take.
  int64_t page_count(int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }
  /// The pages that new nodes lie in, which are not pending yet.
  PageRange page_range(const Span& span) const;

 private:
  void check_parents(const NewNodes& nodes) const;

  int64_t page_size_;
  NamedRows<Row> rows_;
  std::vector<Span> spans_;  // of the newest extend; kept to allocate nothing
};

}  // namespace specdec
