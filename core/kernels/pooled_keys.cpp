#include "core/kernels/pooled_keys.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {
namespace {

constexpr int64_t kMeansOfVector = 16;  // attention reads whole vectors

/// Numbers of a head's key or value in a page: element 0 at `first`, in elements of `pages`.
struct StoredHead {
  const at::Tensor& pages;
  int64_t first, stride;
};

void read_head(KvFormat format, const StoredHead& head, std::vector<float>& floats,
               std::vector<double>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  if (head.pages.scalar_type() == at::kDouble) {
    const double* from = head.pages.const_data_ptr<double>() + head.first;
    for (int64_t i = 0; i < count; ++i) {
      numbers[static_cast<size_t>(i)] = from[i * head.stride];
    }
    return;
  }
  auto* from = static_cast<char*>(head.pages.data_ptr()) +
               head.first * static_cast<int64_t>(head.pages.element_size());
  decode_kv(format, {from, head.stride}, count, floats.data());
  std::copy(floats.begin(), floats.end(), numbers.begin());
}

void write_means(const std::vector<double>& sums, int64_t count, int64_t first, int64_t stride,
                 at::Tensor& to) {
  const auto write = [&](auto* numbers) {
    using Number = std::remove_pointer_t<decltype(numbers)>;
    for (size_t i = 0; i < sums.size(); ++i) {
      numbers[first + static_cast<int64_t>(i) * stride] =
          static_cast<Number>(sums[i] / static_cast<double>(count));
    }
  };
  if (to.scalar_type() == at::kDouble) {
    write(to.mutable_data_ptr<double>());
  } else {
    write(to.mutable_data_ptr<float>());
  }
}

}  // namespace

void PooledKeys::keep(int64_t row, int64_t tokens) {
  if (const auto found = rows_.find(row); found != rows_.end()) {
    found->second.count = std::min(found->second.count, pooling_.chunks_in(tokens));
  }
}

void PooledKeys::fork(int64_t from, int64_t to, int64_t tokens) {
  const auto found = rows_.find(from);
  if (found == rows_.end() || found->second.count == 0) {
    return;
  }
  const Row& row = found->second;
  rows_[to] = {row.keys.clone(), row.values.clone(), row.count};
  keep(to, tokens);
}

PooledKeys::Sight PooledKeys::sight_of(int64_t node, const BatchTables& tables) {
  const int32_t place = tables.rows.const_data_ptr<int32_t>()[node];
  const int32_t start = tables.path_starts.const_data_ptr<int32_t>()[node];
  return {place, tables.lengths.const_data_ptr<int32_t>()[place],
          start < 0 ? nullptr : tables.paths.const_data_ptr<int32_t>() + start};
}

void PooledKeys::update(const KvView& view) {
  const BatchTables& tables = *view.tables;
  const auto* positions = tables.positions.const_data_ptr<int32_t>();
  own_.clear();
  own_of_node_.assign(static_cast<size_t>(tables.nodes), -1);
  for (int64_t node = 0; node < tables.nodes; ++node) {
    const int64_t means = pooling_.means_at(positions[node]);
    if (means == 0) {
      continue;
    }
    const Sight sight = sight_of(node, tables);
    SPECDEC_CHECK(sight.place < std::ssize(places_), "pooled keys: row {} of {}", sight.place,
                  places_.size());
    Row& row = rows_[places_[static_cast<size_t>(sight.place)]];
    const int64_t kept = pooling_.chunks_in(sight.length);
    if (sight.path == nullptr || means <= kept) {
      extend(row, means, sight, view);
      continue;
    }
    extend(row, kept, sight, view);
    Row own;
    reserve(own, means, view);
    if (kept > 0) {
      own.keys.narrow(2, 0, kept).copy_(row.keys.narrow(2, 0, kept));
      own.values.narrow(1, 0, kept).copy_(row.values.narrow(1, 0, kept));
    }
    own.count = kept;
    extend(own, means, sight, view);
    own_of_node_[static_cast<size_t>(node)] = std::ssize(own_);
    own_.push_back(std::move(own));
  }
}

/// Makes the means of a row's first chunks that are missing.
void PooledKeys::extend(Row& row, int64_t means, const Sight& sight, const KvView& view) {
  reserve(row, std::max<int64_t>(1, means), view);  // attention reads rows without means too
  for (; row.count < means; ++row.count) {
    pool(row, sight, view);
  }
}

void PooledKeys::reserve(Row& row, int64_t means, const KvView& view) const {
  const int64_t capacity = row.keys.defined() ? row.keys.size(2) : 0;
  if (means <= capacity) {
    return;
  }
  const int64_t vectors = (means + kMeansOfVector - 1) / kMeansOfVector;
  const int64_t larger = std::max(2 * capacity, vectors * kMeansOfVector);
  const at::ScalarType dtype = view.keys.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Row grown{at::zeros({view.kv_heads(), view.head_dim(), larger}, dtype),
            at::zeros({view.kv_heads(), larger, view.head_dim()}, dtype), row.count};
  if (row.count > 0) {
    grown.keys.narrow(2, 0, row.count).copy_(row.keys.narrow(2, 0, row.count));
    grown.values.narrow(1, 0, row.count).copy_(row.values.narrow(1, 0, row.count));
  }
  row = std::move(grown);
}

/// The mean of the chunk behind those that the row has.
void PooledKeys::pool(Row& row, const Sight& sight, const KvView& view) {
  const int64_t heads = view.kv_heads();
  const int64_t dim = view.head_dim();
  const int64_t size = view.page_size();
  const int64_t width = view.values.size(3);
  const int64_t capacity = row.keys.size(2);
  const int32_t* pages = view.page_table() + sight.place * view.page_stride();
  const int64_t chunk = row.count;
  const int64_t first = pooling_.sink + chunk * pooling_.chunk;
  floats_.resize(static_cast<size_t>(dim));
  numbers_.resize(static_cast<size_t>(dim));
  for (int64_t head = 0; head < heads; ++head) {
    for (const bool is_key : {true, false}) {
      sums_.assign(static_cast<size_t>(dim), 0.0);
      for (int64_t position = first; position < first + pooling_.chunk; ++position) {
        const int64_t slot = sight.path == nullptr || position < sight.length
                                 ? position
                                 : sight.path[position - sight.length];
        const int64_t begin = (pages[slot / size] * heads + head) * size * width;
        const int64_t in_page = slot % size;
        read_head(view.format,
                  is_key ? StoredHead{view.keys, begin + in_page, size}
                         : StoredHead{view.values, begin + in_page * width, 1},
                  floats_, numbers_);
        for (size_t i = 0; i < sums_.size(); ++i) {
          sums_[i] += numbers_[i];
        }
      }
      if (is_key) {
        write_means(sums_, pooling_.chunk, head * dim * capacity + chunk, capacity, row.keys);
      } else {
        write_means(sums_, pooling_.chunk, (head * capacity + chunk) * dim, 1, row.values);
      }
    }
  }
}

}  // namespace specdec
