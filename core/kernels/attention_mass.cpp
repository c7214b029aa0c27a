#include "core/kernels/attention_mass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/kernels/checks.h"
#include "core/kernels/device/cache_address.h"
#include "core/kernels/key_groups.h"

namespace specdec {
namespace {

/// What nodes see, as plain numbers.
class MassReader {
 public:
  MassReader(const Tensor& queries, const KvView& view, const AttentionOptions& options)
      : tables_(host_tables(*view.tables)),
        view_(view),
        options_(options),
        queries_(queries.to(at::kCPU, at::kDouble).contiguous()),
        heads_(queries.size(1)),
        head_dim_(queries.size(2)) {
    view_.tables = &tables_;
    if (!view.keys.is_cpu()) {
      view_.keys = copy_read_keys(view, tables_);
      view_.levels = view.levels.defined() ? view.levels.cpu() : Tensor();
      if (view.exact.recent > 0) {
        KvView recent = view;
        recent.keys = view.exact.keys;
        recent.group = view.exact.group;
        view_.exact.keys = copy_read_keys(recent, tables_);
      }
    }
    if (options_.bias.defined()) {
      options_.bias = options_.bias.cpu();
    }
  }

  void read(int64_t node, const std::function<void(const SeenKey&)>& use) {
    find_keys(node);
    for (int64_t head = 0; head < heads_; ++head) {
      add_weights(node, head);
    }
    for (const SeenKey& key : keys_) {
      use(key);
    }
  }

 private:
  static int32_t entry(const Tensor& table, int64_t index) {
    return table.const_data_ptr<int32_t>()[index];
  }

  /// Where the key at a position lies that the node sees.
  int64_t slot(int64_t node, int64_t position) const {
    const BatchTables& tables = *view_.tables;
    return device::slot_at(static_cast<int32_t>(position),
                           entry(tables.lengths, entry(tables.rows, node)),
                           entry(tables.path_starts, node), tables.paths.const_data_ptr<int32_t>());
  }

  int64_t page_of(const int32_t* page_table, int64_t node, int64_t slot) const {
    const int64_t row = entry(view_.tables->rows, node) * view_.page_stride();
    return page_table[row + slot / view_.page_size()];
  }

  void find_keys(int64_t node) {
    const int64_t own = entry(view_.tables->positions, node);
    const int64_t first = view_.window > 0 ? std::max<int64_t>(0, own - view_.window + 1) : 0;
    keys_.clear();
    slots_.clear();
    for (int64_t position = 0; position <= own; ++position) {
      if (position < first && position >= view_.sink) {
        position = first;
      }
      const int64_t at = slot(node, position);
      const int64_t page = page_of(view_.page_table(), node, at);
      keys_.push_back({node, page, position, own - position, 0.0});
      slots_.push_back(at);
    }
  }

  /// Into key_.
  void decode_key(size_t index, int64_t kv_head) {
    const SeenKey& key = keys_[index];
    const bool exact = key.position >= view_.exact.first_at(key.position + key.age);
    const Tensor& keys = exact ? view_.exact.keys : view_.keys;
    const int64_t size = view_.page_size();
    const int64_t page =
        exact ? page_of(view_.exact_page_table(), key.node, slots_[index]) : key.page;
    const int64_t from =
        (page * view_.kv_heads() + kv_head) * keys.size(2) * size + slots_[index] % size;
    if (keys.scalar_type() == at::kDouble) {
      const double* numbers = keys.const_data_ptr<double>() + from;
      for (int64_t i = 0; i < head_dim_; ++i) {
        key_[static_cast<size_t>(i)] = numbers[i * size];
      }
      return;
    }
    auto* bytes =
        static_cast<char*>(keys.data_ptr()) + from * static_cast<int64_t>(keys.element_size());
    if (view_.read == KvRead::kUpperHalf && !exact) {
      decode_upper_half({bytes, size}, head_dim_, floats_.data());
    } else if (kv_key_group(view_.format) > 1 && !exact) {
      const int64_t token = slots_[index] % kKeyGroup;
      const KeyGroup group{reinterpret_cast<uint8_t*>(bytes) - token, size};
      decode_key_of_group(view_.format, group, token, head_dim_, floats_.data());
    } else {
      decode_kv(exact ? KvFormat::kNative : view_.format, {bytes, size, view_.key_levels(kv_head)},
                head_dim_, floats_.data());
    }
    std::copy(floats_.begin(), floats_.end(), key_.begin());
  }

  /// Attention score of the key that was decoded last.
  double score(int64_t node, int64_t head, int64_t slot) const {
    const double* query = queries_.const_data_ptr<double>() + (node * heads_ + head) * head_dim_;
    double score = 0.0;
    for (int64_t i = 0; i < head_dim_; ++i) {
      score += query[i] * key_[static_cast<size_t>(i)];
    }
    score *= options_.scale;
    if (options_.soft_cap > 0) {
      score = options_.soft_cap * std::tanh(score / options_.soft_cap);
    }
    const Tensor& bias = options_.bias;
    return bias.defined() && slot < bias.size(1)
               ? score + bias.const_data_ptr<float>()[node * bias.size(1) + slot]
               : score;
  }

  void add_weights(int64_t node, int64_t head) {
    key_.resize(static_cast<size_t>(head_dim_));
    floats_.resize(static_cast<size_t>(head_dim_));
    scores_.resize(keys_.size());
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < keys_.size(); ++i) {
      decode_key(i, head / (heads_ / view_.kv_heads()));
      scores_[i] = score(node, head, slots_[i]);
      largest = std::max(largest, scores_[i]);
    }
    double sum = 0.0;
    for (double& each : scores_) {
      each = std::exp(each - largest);
      sum += each;
    }
    if (sum == 0.0 || std::isnan(sum)) {  // the bias hides all of them
      return;
    }
    for (size_t i = 0; i < keys_.size(); ++i) {
      keys_[i].weight += scores_[i] / sum / static_cast<double>(heads_);
    }
  }

  const BatchTables tables_;
  KvView view_;
  AttentionOptions options_;
  const Tensor queries_;  ///< [n, heads, head_dim] float64
  const int64_t heads_, head_dim_;
  std::vector<SeenKey> keys_;   ///< of the node
  std::vector<int64_t> slots_;  ///< that the keys lie at
  std::vector<double> scores_;  ///< of each key, for a query head
  std::vector<double> key_;     ///< the one that was decoded last
  std::vector<float> floats_;
};

}  // namespace

BatchTables host_tables(const BatchTables& tables) {
  BatchTables there = tables;
  for (Tensor BatchTables::*table :
       {&BatchTables::rows, &BatchTables::slots, &BatchTables::positions, &BatchTables::angles,
        &BatchTables::path_starts, &BatchTables::paths, &BatchTables::lengths,
        &BatchTables::page_tables}) {
    there.*table = (there.*table).cpu();
  }
  return there;
}

Tensor copy_read_keys(const KvView& view, const BatchTables& tables) {
  std::set<int64_t> pages;
  for (int64_t node = 0; node < tables.nodes; ++node) {
    const int64_t row = tables.rows.const_data_ptr<int32_t>()[node];
    const int64_t last = tables.slots.const_data_ptr<int32_t>()[node] / view.page_size();
    const int32_t* table = tables.page_tables.const_data_ptr<int32_t>() + view.page_offset() +
                           row * view.page_stride();
    for (int64_t i = 0; i <= last; ++i) {
      if (table[i] >= 0) {  // else the cache has given it back
        pages.insert(table[i]);
      }
    }
  }
  const Tensor numbers = at::tensor(std::vector<int64_t>(pages.begin(), pages.end()), at::kLong);
  Tensor keys = at::empty(view.keys.sizes(), view.keys.options().device(at::kCPU));
  keys.index_copy_(0, numbers, view.keys.index_select(0, numbers.to(view.keys.device())).cpu());
  return keys;
}

void attention_mass(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                    const std::function<void(const SeenKey&)>& use) {
  MassReader reader(queries, view, options);
  for (int64_t node = 0; node < view.tables->nodes; ++node) {
    reader.read(node, use);
  }
}

}  // namespace specdec
