#include "kv/cache_tiers.h"

#include <algorithm>
#include <exception>

namespace specdec {

CacheTiers::CacheTiers(PageTiers& tiers, const CacheRows& rows, const PageGroups& groups,
                       const TieredTables& tables)
    : tiers_(tiers), rows_(rows), groups_(groups), tables_(tables) {}

/// The pages whose slots a commit may move: those of pending nodes that are no chain.
std::vector<int64_t> CacheTiers::pages_of_trees() const {
  std::vector<int64_t> trees;
  for (const RowId row : rows_.names()) {
    const auto& nodes = rows_[row].pending;
    const int64_t begin = rows_.length(row);
    const int64_t end = rows_.held(row);
    const bool is_chain = nodes.empty() || nodes.back().position == end - 1;
    const auto pages = group().table.pages(rows_.place(row));
    for (int64_t i = begin / rows_.page_size(); !is_chain && i < rows_.page_count(end); ++i) {
      trees.push_back(pages[static_cast<size_t>(i)]);
    }
  }
  return trees;
}

/// Adds what a layer with this window reads and writes of an open row.
void CacheTiers::add_uses(RowId row, int64_t window, std::vector<PageUse>& uses) const {
  const int64_t length = rows_.length(row);
  const int64_t first = window > 0 ? std::max<int64_t>(0, length - window) : 0;
  const auto pages = group().table.pages(rows_.place(row));
  const int64_t end =
      std::min(rows_.page_count(rows_.held(row)), static_cast<int64_t>(std::ssize(pages)));
  for (int64_t i = first / rows_.page_size(); i < end; ++i) {
    uses.push_back({pages[static_cast<size_t>(i)], i >= length / rows_.page_size()});
  }
}

std::vector<PageUse> CacheTiers::row_uses(RowId row, int64_t layer) const {
  std::vector<PageUse> uses;
  add_uses(row, group().pool.geometry(layer).window, uses);
  return uses;
}

/// Uses of the rows that a forward evaluates, and of the one that readers were asked for.
std::vector<PageUse> CacheTiers::layer_uses(int64_t layer) const {
  std::vector<PageUse> uses;
  for (const CacheRows::Span& span : rows_.spans()) {
    if (rows_.is_open(span.row)) {
      add_uses(span.row, group().pool.geometry(layer).window, uses);
    }
  }
  const RowId read = tables_.readers.row();
  if (rows_.is_open(read)) {  // readers have windows of their own
    const size_t begin = uses.size();
    add_uses(read, 0, uses);
    for (size_t i = begin; i < uses.size(); ++i) {
      uses[i].is_written = false;
    }
  }
  return uses;
}

void CacheTiers::bring(int64_t layer) {
  const PagePool& pool = groups_.of(layer).pool;
  pool.bring(layer, layer_uses(layer));
  if (pool.renumbers()) {
    tables_.forward.number(layer);
    tables_.readers.number(layer);
  }
  const int64_t next = (layer + 1) % groups_.layers();
  tiers_.read_ahead(pool.source_of(next), layer_uses(next));
}

bool CacheTiers::make_resident(std::span<const int64_t> layers) {
  std::vector<LayerUses> uses;
  for (const int64_t layer : layers) {
    uses.push_back({groups_.of(layer).pool.source_of(layer), layer_uses(layer)});
  }
  if (!tiers_.make_resident(uses)) {
    return false;
  }
  if (groups_.renumbers()) {
    tables_.forward.number_resident(layers);
  }
  return true;
}

void CacheTiers::keep_free() {
  if (groups_.options().keep_free > 0.0) {
    try {
      manage_tiers();
    } catch (const std::exception&) {  // what was committed stays so
    }
  }
}

std::vector<PlacedPage> CacheTiers::pages(RowId row) {
  const std::vector<int64_t> pages = pages_of(row);
  std::vector<PlacedPage> placed;
  for (int64_t layer = 0; layer < groups_.layers(); ++layer) {
    const int64_t bytes = 2 * tiers_.pages().page_bytes[static_cast<size_t>(layer)];
    for (size_t i = 0; bytes > 0 && i < pages.size(); ++i) {
      if (const auto state = tiers_.state(layer, pages[i])) {
        placed.push_back({.layer = layer,
                          .position = static_cast<int64_t>(i) * rows_.page_size(),
                          .bytes = bytes,
                          .tier = state->tier,
                          .access_count = state->access_count});
      }
    }
  }
  return placed;
}

int64_t CacheTiers::demote(RowId row) {
  std::vector<int64_t> kept = pages_of_trees();
  for (const CacheRows::Span& span : rows_.spans()) {
    if (span.row != row && rows_.is_open(span.row)) {
      const std::vector<int64_t> pages = pages_of(span.row);
      kept.insert(kept.end(), pages.begin(), pages.end());
    }
  }
  return tiers_.demote(pages_of(row), kept);
}

int64_t CacheTiers::promote(RowId row) {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < groups_.layers(); ++layer) {
    if (tiers_.pages().page_bytes[static_cast<size_t>(layer)] > 0) {
      bytes += tiers_.promote(layer, row_uses(row, layer));
    }
  }
  return bytes;
}

int64_t CacheTiers::manage_tiers() {
  const KvCacheOptions& options = groups_.options();
  const auto memory = static_cast<double>(options.memory_bytes);
  return tiers_.keep_free(static_cast<int64_t>(options.keep_free * memory));
}

std::vector<int64_t> CacheTiers::pages_of(RowId row) const {
  const auto pages = group().table.pages(rows_.place(row));
  return {pages.begin(), pages.begin() + rows_.page_count(rows_.held(row))};
}

}  // namespace specdec
