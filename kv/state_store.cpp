#include "kv/state_store.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/prefill_size.h"

namespace specdec {
namespace {

constexpr int64_t kNodeNumbers = sizeof(NodeState) / sizeof(int32_t);
constexpr int64_t kFewestNodes = 32;

const StateOptions& checked(int64_t numbers, const StateOptions& options) {
  SPECDEC_CHECK(
      numbers > 0 && options.every > 0 && options.most_checkpoints >= 0 && options.max_bytes >= 0,
      "states: {} numbers, checkpoints every {} tokens, {} of them, {} bytes", numbers,
      options.every, options.most_checkpoints, options.max_bytes);
  return options;
}

}  // namespace

StateStore::StateStore(int64_t numbers, const KvCacheOptions& options)
    : state_bytes_(numbers * static_cast<int64_t>(c10::elementSize(options.dtype))),
      options_(checked(numbers, options.states)),
      pool_(numbers, at::TensorOptions().dtype(options.dtype).device(options.device),
            state_capacity(state_bytes_, options)),
      table_(options.device, options.as_device) {
  open(0);
}

void StateStore::check_room(int64_t nodes) const {
  if (const int64_t wanted = count() + nodes; wanted > pool_.capacity()) {
    throw Error(fmt::format(
        "the cache holds {} states of recurrent layers ({} bytes each), not {}: raise its "
        "state_megabytes (a prompt takes a state for each of up to {} tokens that are read at "
        "once), lower state_checkpoints, draft fewer tokens, or use fewer beams",
        pool_.capacity(), state_bytes_, wanted, kPrefillTokens));
  }
}

/// Room for new nodes in the pool and in the table.
void StateStore::reserve(int64_t nodes) {
  pool_.reserve(nodes);
  if (const int64_t numbers = nodes * kNodeNumbers; numbers > table_.size()) {
    table_.allocate(std::max({numbers, 2 * table_.size(), kFewestNodes * kNodeNumbers}));
    nodes_.nodes = table_.device().view({-1, kNodeNumbers});
  }
  nodes_.memory = pool_.memory();
}

void StateStore::extend(const NewNodes& nodes) {
  spans_.clear();
  if (nodes.count == 0) {
    return;
  }
  check_room(nodes.count);
  reserve(nodes.count);
  auto* states = reinterpret_cast<NodeState*>(table_.host().mutable_data_ptr<int32_t>());
  for (int64_t node = 0; node < nodes.count; ++node) {
    const auto place = static_cast<size_t>(node);
    const RowId name = nodes.rows.empty() ? 0 : nodes.rows[place];
    if (spans_.empty() || spans_.back().row != name) {
      spans_.push_back({name, 0});
    }
    Row& row = rows_.at(name);
    const int64_t pending = std::ssize(row.pending);
    const int64_t parent = nodes.parents.empty() ? pending - 1 : nodes.parents[place];
    const HeldState& before = parent < 0 ? row.last : row.pending[static_cast<size_t>(parent)];
    const bool is_new = parent >= pending - spans_.back().nodes;
    HeldState after(pool_);
    states[node] = {.parent = is_new ? static_cast<int32_t>(node - (pending - parent)) : -1,
                    .before = before.number(),
                    .after = after.number()};
    row.pending.push_back(std::move(after));
    ++spans_.back().nodes;
  }
  table_.upload(nodes.count * kNodeNumbers);
}

void StateStore::undo_extend() {
  for (const Span& span : spans_) {
    std::vector<HeldState>& pending = rows_.at(span.row).pending;
    pending.resize(pending.size() - static_cast<size_t>(span.nodes));
  }
  spans_.clear();
}

void StateStore::commit(RowId name, std::span<const int64_t> path) {
  Row& row = rows_.at(name);
  for (const int64_t node : path) {
    row.last = row.pending[static_cast<size_t>(node)];
    if (++row.length % options_.every == 0 && options_.most_checkpoints > 0) {
      row.checkpoints.push_back({row.length, row.last});
    }
  }
  if (const auto more = std::ssize(row.checkpoints) - options_.most_checkpoints; more > 0) {
    row.checkpoints.erase(row.checkpoints.begin(), row.checkpoints.begin() + more);
  }
  row.pending.clear();
}

int64_t StateStore::newest_checkpoint(const Row& row, int64_t length) {
  const auto next =
      std::find_if(row.checkpoints.rbegin(), row.checkpoints.rend(),
                   [length](const Checkpoint& each) { return each.length <= length; });
  return next == row.checkpoints.rend() ? 0 : next->length;
}

int64_t StateStore::rewindable_to(RowId name, int64_t length) const {
  const Row& row = rows_.at(name);
  return length >= row.length ? row.length : newest_checkpoint(row, length);
}

HeldState StateStore::state_at(const Row& row, int64_t length) const {
  if (length == 0 || length == row.length) {
    return length == 0 ? HeldState() : row.last;
  }
  const auto found =
      std::find_if(row.checkpoints.begin(), row.checkpoints.end(),
                   [length](const Checkpoint& each) { return each.length == length; });
  if (found == row.checkpoints.end()) {
    throw Error(fmt::format(
        "the row's {} tokens cannot be cut to {} but to {}: recurrent layers keep the states of "
        "the last token and of {} checkpoints, one in {} tokens. A cache of type paged with "
        "state_every: 1 keeps all, as far back as its state_checkpoints",
        row.length, length, newest_checkpoint(row, length), options_.most_checkpoints,
        options_.every));
  }
  return found->state;
}

void StateStore::cut(Row& row, int64_t length) {
  row.length = length;
  std::erase_if(row.checkpoints, [length](const Checkpoint& each) { return each.length > length; });
  row.pending.clear();
}

void StateStore::truncate(RowId name, int64_t length) {
  Row& row = rows_.at(name);
  row.last = state_at(row, length);
  cut(row, length);
}

void StateStore::open(RowId row) { rows_[row] = {}; }

void StateStore::fork(RowId name, RowId branch, int64_t length) {
  Row copy = rows_.at(name);
  copy.last = state_at(copy, length);
  cut(copy, length);
  rows_[branch] = std::move(copy);
}

void StateStore::close(RowId row) { rows_.erase(row); }

}  // namespace specdec
