#include "kv/kv_cache.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "kv/page_snapshot.h"

namespace specdec {

KvCache::KvCache(const std::vector<LayerKv>& layers, const KvCacheOptions& options)
    : groups_(std::make_shared<PageGroups>(layers, options)),
      rows_(options.page_size),
      capacity_(rows_, *groups_),
      pages_(rows_, *groups_),
      numbers_(rows_, *groups_),
      rounding_(rows_, *groups_),
      tables_(rows_, *groups_),
      readers_(rows_, *groups_) {
  if (PageTiers* tiers = groups_->tiers()) {
    tiers_ = std::make_unique<CacheTiers>(*tiers, rows_, *groups_, TieredTables{tables_, readers_});
  }
}

/// All of an extend that may throw: then nothing has changed, but that no row was extended last.
void KvCache::make_room(const NewNodes& nodes) {
  rows_.find_spans(nodes);
  capacity_.check_spans();
  groups_->take_back();
  tables_.reserve(nodes);
  pages_.reserve_spans();
}

void KvCache::extend(const NewNodes& nodes) {
  readers_.forget_row();
  try {
    make_room(nodes);
  } catch (...) {
    rows_.forget_spans();  // these nodes are in no tables
    throw;
  }
  rows_.add_nodes(nodes);
  tables_.write(nodes);
  if (tiers_ != nullptr) {
    tiers_->begin_forward();
  }
}

void KvCache::undo_extend() {
  rows_.undo_nodes();
  if (tiers_ != nullptr) {
    tiers_->undo_forward();
  }
}

KvView KvCache::view(int64_t layer) const {
  if (tiers_ != nullptr) {
    tiers_->bring(layer);
  }
  return describe(layer);
}

KvView KvCache::describe(int64_t layer) const {
  KvView view = groups_->describe(layer);
  view.tables = &tables_.device();
  return view;
}

bool KvCache::make_resident(std::span<const int64_t> layers) {
  return tiers_ == nullptr || tiers_->make_resident(layers);
}

void KvCache::commit(RowId row, std::span<const int64_t> path) {
  rows_.check_path(row, path);
  // Nodes of a path ascend: those that move are its last ones, and no move overwrites one yet to be
  // moved. Groups of keys that end before them were rounded by a forward.
  CacheRows::Row& kept = rows_[row];
  const int64_t end = kept.length + std::ssize(path);
  int64_t in_place = 0;
  while (in_place < std::ssize(path) && path[static_cast<size_t>(in_place)] == in_place) {
    ++in_place;
  }
  const int64_t ends = rounding_.find(row, {kept.length + in_place, end});  // throws before moves
  pages_.move_path(row, path, in_place);
  rounding_.round(ends, end);
  kept.length = end;
  kept.pending.clear();
  pages_.give_back(row);
  if (tiers_ != nullptr) {
    tiers_->keep_free();
  }
}

int64_t KvCache::rewindable_to(RowId row, int64_t length) const {
  return length < rows_[row].shortest ? 0 : length;
}

void KvCache::truncate(RowId row, int64_t length) {
  CacheRows::Row& cut = rows_[row];
  SPECDEC_CHECK(length >= 0 && length <= cut.length,
                "truncate: row {} holds {} tokens, cannot be cut to {}", row, cut.length, length);
  groups_->check_rewindable("truncate", length, cut.shortest);
  cut.length = length;
  cut.shortest = length == 0 ? 0 : cut.shortest;
  cut.pending.clear();
}

RowId KvCache::open() {
  capacity_.check_open();
  const RowId row = rows_.open();
  pages_.add_rows();
  return row;
}

RowId KvCache::fork(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "fork: row {} holds {} tokens, not {}",
                row, this->length(row), length);
  groups_->check_rewindable("fork", length, rows_[row].shortest);
  const RowId branch = open();
  rows_[branch] = {.length = length, .shortest = length == 0 ? 0 : rows_[row].shortest};
  pages_.share(row, branch, length);
  return branch;
}

void KvCache::close(RowId row) {
  const int64_t freed = rows_.place(row);
  rows_.close(row);
  pages_.release(freed);
}

std::shared_ptr<const KvSnapshot> KvCache::snapshot(RowId row) {
  SPECDEC_CHECK(pending(row) == 0,
                "snapshot: {} pending nodes are left on row {}; commit or truncate them first",
                pending(row), row);
  groups_->take_back();
  PageGroups::HeldPages held;
  bool has_room = true;
  for (PageGroup& group : groups_->all()) {
    held.push_back(group.table.hold(rows_.place(row), rows_.page_count(length(row))));
    const int64_t of_row = group.windowed(rows_.page_count(max_length()));
    has_room = has_room && group.table.held_pages() + of_row <= group.pool.capacity();
  }
  auto shared =
      std::make_shared<PageSnapshot>(groups_, std::move(held), length(row), rows_[row].shortest);
  if (has_room && tiers_ == nullptr) {  // pages on disk are brought by the model's thread alone
    return shared;
  }
  return std::make_shared<KvCopies>(shared->copy(), length(row), shared->shortest_length());
}

void KvCache::restore(RowId row, const KvSnapshot& snapshot, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= snapshot.length(), "restore: {} tokens of {}", length,
                snapshot.length());
  groups_->check_rewindable("restore", length, snapshot.shortest_length());
  groups_->take_back();
  rows_[row] = {};
  rows_.forget_spans();
  capacity_.check_length(length);
  const auto* own = dynamic_cast<const PageSnapshot*>(&snapshot);
  if (own != nullptr && own->groups() == groups_.get()) {
    for (size_t group = 0; group < groups_->all().size(); ++group) {
      groups_->all()[group].table.attach(
          rows_.place(row), own->pages(group).first(static_cast<size_t>(rows_.page_count(length))));
    }
  } else {
    pages_.renew(row, length);
    groups_->copy_in(rows_.place(row), length, snapshot.copy());
  }
  rows_[row].length = length;
  rows_[row].shortest = length == 0 ? 0 : snapshot.shortest_length();
  pages_.give_back(row);
}

void KvCache::append(RowId row, int64_t count, const NumbersOfLayer& numbers) {
  SPECDEC_CHECK(pending(row) == 0, "append: {} pending nodes are left on row {}", pending(row),
                row);
  const std::vector<RowId> rows(static_cast<size_t>(count), row);
  extend({.count = count, .rows = rows});
  try {
    const TokenRange tokens{length(row), length(row) + count};
    numbers_.write(row, tokens, numbers);
    rounding_.round(rounding_.find(row, tokens), tokens.end);
  } catch (...) {
    undo_extend();
    throw;
  }
  std::vector<int64_t> path(static_cast<size_t>(count));
  std::iota(path.begin(), path.end(), int64_t{0});
  commit(row, path);
}

bool KvCache::fits(std::span<const RowGrowth> rows, std::span<const RowId> closed) const {
  groups_->take_back();
  return capacity_.fits(rows, closed);
}

KvStatistics KvCache::statistics() const {
  groups_->take_back();
  return groups_->statistics(rows_.held());
}

void KvCache::touch(int64_t tokens) {
  groups_->touch(rows_.page_count(std::min(tokens, max_length())));
}

std::shared_ptr<Ops> KvCache::observed(std::shared_ptr<Ops> ops) {
  rounding_.run_with(ops);
  return ops;
}

}  // namespace specdec
