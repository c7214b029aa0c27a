#include "core/transformer/forward_graphs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "core/kernels/pooled_keys.h"

namespace specdec {

void add_address(const Tensor& tensor, GraphKey& key) {
  key.push_back(tensor.defined() ? reinterpret_cast<intptr_t>(tensor.const_data_ptr()) : 0);
}

void add_tables(const BatchTables& tables, GraphKey& key) {
  for (const Tensor* table :
       {&tables.rows, &tables.slots, &tables.positions, &tables.angles, &tables.path_starts,
        &tables.paths, &tables.lengths, &tables.page_tables, &tables.tokens}) {
    add_address(*table, key);
  }
  key.push_back(tables.page_tables.size(1));
  key.push_back(tables.page_tables.size(2));
}

void add_states(const NodeStates& states, GraphKey& key) {
  add_address(states.memory, key);
  add_address(states.nodes, key);
}

void add_pages(const KvView& view, GraphKey& key) {
  add_address(view.keys, key);
  add_address(view.values, key);
  add_address(view.exact.keys, key);
  add_address(view.exact.values, key);
  if (view.pooled != nullptr) {
    const PooledKeys& means = *view.pooled;
    add_address(means.keys(), key);
    add_address(means.values(), key);
    add_address(means.made(), key);
    key.insert(key.end(), {means.columns(), means.own_column(0), means.own_columns()});
  }
}

int64_t launched_context(int64_t longest) {
  constexpr uint64_t kSmallest = 128;
  return static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(longest), kSmallest)));
}

ForwardGraphs::Entry* ForwardGraphs::find(const GraphKey& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&key](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) {
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, found);
  return &entries_.front();
}

ForwardGraphs::Entry& ForwardGraphs::add(const GraphKey& key) {
  if (std::ssize(entries_) >= most_) {
    entries_.pop_back();
  }
  entries_.push_front({.key = key});
  return entries_.front();
}

bool ForwardGraphs::knows(const GraphKey& key) {
  if (find(key) != nullptr) {
    return true;
  }
  add(key);
  return false;
}

void ForwardGraphs::run(const GraphKey& key, const std::function<void()>& calls) {
  Entry* entry = find(key);
  if (entry == nullptr || !entry->has_run) {
    calls();
    ++counts_.warm_ups;
    (entry != nullptr ? *entry : add(key)).has_run = true;
    return;
  }
  if (entry->graph == nullptr) {
    entry->graph = ops_.record(calls);
    ++counts_.captures;
  } else {
    ++counts_.replays;
  }
  entry->graph->run();
}

}  // namespace specdec
