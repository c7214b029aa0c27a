#include "core/kernels/pooled_keys.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <span>
#include <type_traits>

#include "core/error.h"

namespace specdec {
namespace {

constexpr int64_t kMeansOfVector = 16;  // attention reads whole vectors

/// Numbers of a head's key or value in a page: element 0 at `first`, in elements of `pages`.
struct StoredHead {
  const at::Tensor& pages;
  int64_t first, stride;
  const float* levels;  ///< of kQ3
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
  decode_kv(format, {from, head.stride, head.levels}, count, floats.data());
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

/// Capacity of at least `needed`; twice as much as is there where that is too little.
int64_t grown(int64_t there, int64_t needed) {
  return needed <= there ? there : std::max(needed, 2 * there);
}

int64_t whole_vectors(int64_t means) {
  return (means + kMeansOfVector - 1) / kMeansOfVector * kMeansOfVector;
}

}  // namespace

void PooledKeys::check_bias(const Tensor& bias) {
  if (bias.defined()) {
    throw Error(
        "a cache of type compressed takes no attention_bias, which is of single tokens: choose "
        "another cache, as type: window");
  }
}

void PooledKeys::reserve(const KvView& view, const Sizes& sizes) {
  Sizes room{.rows = grown(room_.rows, sizes.rows),
             .means = whole_vectors(grown(room_.means, sizes.means)),
             .nodes = room_.nodes,
             .own = room_.own};
  if (sizes.own > 0) {
    room.nodes = grown(room_.nodes, sizes.nodes);
    room.own = grown(room_.own, sizes.own);
  }
  const int64_t columns = whole_vectors(room.means + room.nodes * room.own);
  if (room.rows == room_.rows && room.means == room_.means && columns == this->columns()) {
    room_ = room;
    return;
  }
  const c10::InferenceMode inference;  // what is made in it may not be written outside of it
  const auto numbers =
      view.keys.options().dtype(view.keys.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const Tensor keys = at::zeros({room.rows, view.kv_heads(), view.head_dim(), columns}, numbers);
  const Tensor values = at::zeros({room.rows, view.kv_heads(), columns, view.head_dim()}, numbers);
  const Tensor made = at::zeros({room.rows, 2 * view.kv_heads()}, numbers.dtype(at::kInt));
  if (keys_.defined()) {
    const auto before = [this](const Tensor& all, int64_t dimension) {
      return all.narrow(0, 0, room_.rows).narrow(dimension, 0, room_.means);
    };
    before(keys, 3).copy_(before(keys_, 3));
    before(values, 2).copy_(before(values_, 2));
    made.narrow(0, 0, room_.rows).copy_(made_);
  }
  keys_ = keys;
  values_ = values;
  made_ = made;
  room_ = room;
}

void PooledKeys::keep(int64_t place, int64_t means) {
  if (place < room_.rows) {
    const c10::InferenceMode inference;
    made_.select(0, place).clamp_max_(means);
  }
}

void PooledKeys::fork(int64_t from, int64_t to, int64_t means) {
  if (from >= room_.rows || to >= room_.rows) {
    return;  // nothing is made
  }
  const c10::InferenceMode inference;
  keys_.select(0, to).narrow(2, 0, means).copy_(keys_.select(0, from).narrow(2, 0, means));
  values_.select(0, to).narrow(1, 0, means).copy_(values_.select(0, from).narrow(1, 0, means));
  made_.select(0, to).copy_(made_.select(0, from).clamp_max(means));
}

void PooledKeys::update(const KvView& view) {
  const BatchTables& tables = *view.tables;
  for (int64_t node = 0; node < tables.nodes; ++node) {
    const int64_t means = pooling_.means_at(tables.positions.const_data_ptr<int32_t>()[node]);
    if (means == 0) {
      continue;
    }
    const int64_t place = tables.rows.const_data_ptr<int32_t>()[node];
    const int64_t length = tables.lengths.const_data_ptr<int32_t>()[place];
    const int64_t start = tables.path_starts.const_data_ptr<int32_t>()[node];
    const int64_t kept = pooling_.chunks_in(length);
    const int64_t shared = start < 0 ? means : std::min(means, kept);
    SPECDEC_CHECK(place < room_.rows && shared <= room_.means && means - shared <= room_.own,
                  "pooled keys: no room for {} means of row {}", means, place);
    auto made = std::span(made_.mutable_data_ptr<int32_t>() + place * made_.size(1),
                          static_cast<size_t>(made_.size(1)));
    for (int64_t chunk = made.front(); chunk < shared; ++chunk) {
      pool({place, chunk, chunk, length, nullptr}, view);
      std::fill(made.begin(), made.end(), static_cast<int32_t>(chunk + 1));
    }
    for (int64_t chunk = shared; chunk < means; ++chunk) {
      pool({place, chunk, own_column(node) + chunk - kept, length,
            tables.paths.const_data_ptr<int32_t>() + start},
           view);
    }
  }
}

void PooledKeys::pool(const Mean& mean, const KvView& view) {
  const int64_t heads = view.kv_heads();
  const int64_t dim = view.head_dim();
  const int64_t size = view.page_size();
  const int64_t width = view.values.size(3);
  const int32_t* pages = view.page_table() + mean.place * view.page_stride();
  const int64_t first = pooling_.sink + mean.chunk * pooling_.chunk;
  floats_.resize(static_cast<size_t>(dim));
  numbers_.resize(static_cast<size_t>(dim));
  for (int64_t head = 0; head < heads; ++head) {
    for (const bool is_key : {true, false}) {
      sums_.assign(static_cast<size_t>(dim), 0.0);
      for (int64_t position = first; position < first + pooling_.chunk; ++position) {
        const int64_t slot = mean.path == nullptr || position < mean.length
                                 ? position
                                 : mean.path[position - mean.length];
        const int64_t begin = (pages[slot / size] * heads + head) * size * width;
        const int64_t in_page = slot % size;
        read_head(
            view.format,
            is_key ? StoredHead{view.keys, begin + in_page, size, view.key_levels(head)}
                   : StoredHead{view.values, begin + in_page * width, 1, view.value_levels(head)},
            floats_, numbers_);
        for (size_t i = 0; i < sums_.size(); ++i) {
          sums_[i] += numbers_[i];
        }
      }
      const int64_t row = (mean.place * heads + head) * columns();
      if (is_key) {
        write_means(sums_, pooling_.chunk, row * dim + mean.column, columns(), keys_);
      } else {
        write_means(sums_, pooling_.chunk, (row + mean.column) * dim, 1, values_);
      }
    }
  }
}

}  // namespace specdec
