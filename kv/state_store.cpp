#include "kv/state_store.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/prefill_size.h"

namespace specdec {

StateStore::StateStore(int64_t numbers, const KvCacheOptions& options)
    : numbers_(numbers),
      elements_(at::TensorOptions().dtype(options.dtype).device(options.device)),
      options_(options.states) {
  SPECDEC_CHECK(numbers > 0 && options_.every > 0 && options_.most_checkpoints >= 0 &&
                    options_.max_bytes >= 0,
                "states: {} numbers, checkpoints every {} tokens, {} of them, {} bytes", numbers,
                options_.every, options_.most_checkpoints, options_.max_bytes);
  open(0);
}

int64_t StateStore::state_bytes() const {
  return numbers_ * static_cast<int64_t>(elements_.dtype().itemsize());
}

int64_t StateStore::count() const {
  std::set<const void*> states;
  const auto add = [&states](const Tensor& state) {
    if (state.defined()) {
      states.insert(state.unsafeGetTensorImpl());
    }
  };
  for (const auto& [name, row] : rows_) {
    add(row.last);
    std::for_each(row.pending.begin(), row.pending.end(), add);
    for (const Checkpoint& checkpoint : row.checkpoints) {
      add(checkpoint.state);
    }
  }
  return std::ssize(states);
}

void StateStore::check_room(int64_t nodes) const {
  if (options_.max_bytes == 0) {
    return;
  }
  const int64_t most = options_.max_bytes / state_bytes();
  if (const int64_t wanted = count() + nodes; wanted > most) {
    throw Error(fmt::format(
        "the cache holds {} states of recurrent layers ({} bytes each), not {}: raise its "
        "state_megabytes (a prompt takes a state for each of up to {} tokens that are read at "
        "once), lower state_checkpoints, draft fewer tokens, or use fewer beams",
        most, state_bytes(), wanted, kPrefillTokens));
  }
}

void StateStore::extend(const NewNodes& nodes) {
  check_room(nodes.count);
  std::vector<Tensor> states;
  for (int64_t node = 0; node < nodes.count; ++node) {
    states.push_back(at::empty({numbers_}, elements_));
  }
  spans_.clear();
  nodes_.before.clear();
  nodes_.after.clear();
  for (int64_t node = 0; node < nodes.count; ++node) {
    const auto place = static_cast<size_t>(node);
    const RowId name = nodes.rows.empty() ? 0 : nodes.rows[place];
    Row& row = rows_.at(name);
    const int64_t parent =
        nodes.parents.empty() ? std::ssize(row.pending) - 1 : nodes.parents[place];
    const Tensor& before = parent < 0 ? row.last : row.pending[static_cast<size_t>(parent)];
    nodes_.before.push_back(
        before.defined() ? static_cast<const std::byte*>(before.const_data_ptr()) : nullptr);
    nodes_.after.push_back(static_cast<std::byte*>(states[place].mutable_data_ptr()));
    row.pending.push_back(std::move(states[place]));
    if (spans_.empty() || spans_.back().row != name) {
      spans_.push_back({name, 0});
    }
    ++spans_.back().nodes;
  }
}

void StateStore::undo_extend() {
  for (const Span& span : spans_) {
    std::vector<Tensor>& pending = rows_.at(span.row).pending;
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

Tensor StateStore::state_at(const Row& row, int64_t length) const {
  if (length == 0 || length == row.length) {
    return length == 0 ? Tensor() : row.last;
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
