#include "core/kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "core/kernels/checks.h"

namespace specdec {
namespace {

/// One node and one kv head.
template <class T>
struct AttentionTask {
  const T* queries;  ///< [group, head_dim]
  T* out;            ///< [group, head_dim]
  const T* keys;     ///< of the kv head; key j lies at keys + offsets[j]
  const T* values;
  const int64_t* offsets;  ///< [visible], in the order of their slots
  const int32_t* columns;  ///< [visible] slots; only with a bias
  int64_t visible;
  int64_t group, head_dim;
  T scale, soft_cap;
  const float* bias;  ///< [bias_columns] or nullptr
  int64_t bias_columns;
  T* scores;       ///< [4, stride]
  int64_t stride;  ///< visible, rounded up to whole vectors
};

/// Query heads that are computed together (see attend in attention_simd.h), numbers in the widest
/// vector.
constexpr int64_t kHeadBlock = 4;
constexpr int64_t kWidest = 16;

/// Multiplications that are worth a second thread.
constexpr int64_t kParallelWork = 200'000;

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/attention_simd.h"
#include "core/kernels/for_each_simd.h"

namespace specdec {
namespace {

/// Memory of one thread; it only grows.
template <class T>
struct Scratch {
  std::vector<int64_t> offsets;
  std::vector<int32_t> columns;
  std::vector<T> scores;

  void reserve(int64_t slots) {
    const auto needed = static_cast<size_t>(slots + kWidest);
    if (offsets.size() < needed) {
      offsets.resize(2 * needed);
      columns.resize(2 * needed);
      scores.resize(2 * needed * kHeadBlock);
    }
  }
};

/// Plain pointers to a forward's tables and one layer's geometry.
struct Layout {
  explicit Layout(const KvView& view)
      : rows(view.tables->rows.const_data_ptr<int32_t>()),
        positions(view.tables->positions.const_data_ptr<int32_t>()),
        ancestors(
            reinterpret_cast<const uint32_t*>(view.tables->ancestors.const_data_ptr<int32_t>())),
        lengths(view.tables->lengths.const_data_ptr<int32_t>()),
        pending_positions(view.tables->pending_positions.const_data_ptr<int32_t>()),
        page_table(view.tables->page_table.const_data_ptr<int32_t>()),
        words(view.tables->words),
        word_capacity(view.tables->ancestors.size(1)),
        pending_capacity(view.tables->pending_positions.size(1)),
        page_capacity(view.tables->page_table.size(1)),
        window(view.window),
        kv_heads(view.keys.size(1)),
        page_size(view.keys.size(2)),
        head_dim(view.keys.size(3)) {}

  const int32_t *rows, *positions;
  const uint32_t* ancestors;
  const int32_t *lengths, *pending_positions, *page_table;
  int64_t words, word_capacity, pending_capacity, page_capacity;
  int64_t window;
  int64_t kv_heads, page_size, head_dim;
};

/// Lists what a node sees, in the order of the slots.
class VisibleKeys {
 public:
  template <class T>
  VisibleKeys(const Layout& layout, int64_t node, Scratch<T>& scratch)
      : layout_(layout), pages_(layout.page_table + layout.rows[node] * layout.page_capacity) {
    const int64_t row = layout.rows[node];
    const int64_t length = layout.lengths[row];
    const int64_t position = layout.positions[node];
    scratch.reserve(length + layout.words * 32);
    offsets_ = scratch.offsets.data();
    columns_ = scratch.columns.data();
    const int64_t first =
        layout.window > 0 ? std::max<int64_t>(0, position - layout.window + 1) : 0;
    add_slots(first, length);
    const uint32_t* bits = layout.ancestors + node * layout.word_capacity;
    const int32_t* pending = layout.pending_positions + row * layout.pending_capacity;
    for (int64_t word = 0; word < layout.words; ++word) {
      for (uint32_t left = bits[word]; left != 0; left &= left - 1) {
        const int64_t index = word * 32 + __builtin_ctz(left);
        if (pending[index] >= first) {
          add_slots(length + index, length + index + 1);
        }
      }
    }
  }

  int64_t count() const { return count_; }

 private:
  void add_slots(int64_t begin, int64_t end) {
    const int64_t dim = layout_.head_dim;
    while (begin < end) {
      const int64_t in_page = begin % layout_.page_size;
      const int64_t stop = std::min(end, begin - in_page + layout_.page_size);
      const int64_t page = pages_[begin / layout_.page_size];
      int64_t offset = (page * layout_.kv_heads * layout_.page_size + in_page) * dim;
      for (; begin < stop; ++begin, offset += dim) {
        offsets_[count_] = offset;
        columns_[count_++] = static_cast<int32_t>(begin);
      }
    }
  }

  const Layout& layout_;
  const int32_t* pages_;
  int64_t* offsets_ = nullptr;
  int32_t* columns_ = nullptr;
  int64_t count_ = 0;
};

template <class T>
struct Operands {
  const T* queries;
  const T* keys;
  const T* values;
  T* out;
  const float* bias;
  int64_t bias_columns;
  int64_t heads;
  T scale, soft_cap;
};

template <class T>
void attend_node(const Operands<T>& operands, const Layout& layout, int64_t node) {
  thread_local Scratch<T> scratch;  // kept, so that a decoding step allocates nothing
  const VisibleKeys visible(layout, node, scratch);
  const int64_t group = operands.heads / layout.kv_heads;
  AttentionTask<T> task;
  task.offsets = scratch.offsets.data();
  task.columns = scratch.columns.data();
  task.visible = visible.count();
  task.group = group;
  task.head_dim = layout.head_dim;
  task.scale = operands.scale;
  task.soft_cap = operands.soft_cap;
  task.bias = operands.bias == nullptr ? nullptr : operands.bias + node * operands.bias_columns;
  task.bias_columns = operands.bias_columns;
  task.scores = scratch.scores.data();
  task.stride = (visible.count() + kWidest - 1) / kWidest * kWidest;
  for (int64_t kv_head = 0; kv_head < layout.kv_heads; ++kv_head) {
    const int64_t queries = (node * operands.heads + kv_head * group) * layout.head_dim;
    const int64_t keys = kv_head * layout.page_size * layout.head_dim;
    task.queries = operands.queries + queries;
    task.out = operands.out + queries;
    task.keys = operands.keys + keys;
    task.values = operands.values + keys;
    SPECDEC_SIMD_CALL(attend, task);
  }
}

template <class T>
void run(const Tensor& queries, const KvView& view, const AttentionOptions& options, Tensor& out) {
  const Layout layout(view);
  const bool biased = options.bias.defined();
  const Operands<T> operands{queries.const_data_ptr<T>(),
                             view.keys.const_data_ptr<T>(),
                             view.values.const_data_ptr<T>(),
                             out.mutable_data_ptr<T>(),
                             biased ? options.bias.const_data_ptr<float>() : nullptr,
                             biased ? options.bias.size(1) : 0,
                             queries.size(1),
                             static_cast<T>(options.scale),
                             static_cast<T>(options.soft_cap)};
  const int64_t nodes = queries.size(0);
  int64_t work = 0;
  for (int64_t node = 0; node < nodes; ++node) {
    const int64_t seen = layout.positions[node] + 1;
    work += layout.window > 0 ? std::min(seen, layout.window) : seen;
  }
  work *= 2 * operands.heads * layout.head_dim;
  if (nodes == 1 || work < kParallelWork || at::get_num_threads() == 1) {
    for (int64_t node = 0; node < nodes; ++node) {
      attend_node(operands, layout, node);
    }
    return;
  }
  at::parallel_for(0, nodes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t node = begin; node < end; ++node) {
      attend_node(operands, layout, node);
    }
  });
}

void check(const Tensor& queries, const KvView& view, const AttentionOptions& options,
           const Tensor& out) {
  check_cpu(queries);
  SPECDEC_CHECK(view.tables != nullptr && view.keys.dim() == 4 && view.format == KvFormat::kNative,
                "paged_attention: no cache, or one of another format");
  const at::ScalarType dtype = queries.scalar_type();
  SPECDEC_CHECK(is_float_or_double(queries) && is_plain(queries, dtype) && is_plain(out, dtype) &&
                    is_plain(view.keys, dtype) && is_plain(view.values, dtype),
                "paged_attention: operands should be contiguous, all float32 or all float64");
  SPECDEC_CHECK(queries.dim() == 3 && queries.size(0) == view.tables->nodes &&
                    queries.size(2) == view.keys.size(3) && out.numel() == queries.numel(),
                "paged_attention: queries and out should be [{}, heads, {}]", view.tables->nodes,
                view.keys.size(3));
  SPECDEC_CHECK(queries.size(1) % view.keys.size(1) == 0,
                "paged_attention: {} query heads for {} kv heads", queries.size(1),
                view.keys.size(1));
  SPECDEC_CHECK(
      !options.bias.defined() || (is_plain(options.bias, at::kFloat) && options.bias.dim() == 2 &&
                                  options.bias.size(0) == queries.size(0)),
      "paged_attention: the bias should be [{}, columns] float32", queries.size(0));
}

}  // namespace

void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                     Tensor& out) {
  check(queries, view, options, out);
  if (queries.scalar_type() == at::kDouble) {
    run<double>(queries, view, options, out);
  } else {
    run<float>(queries, view, options, out);
  }
}

}  // namespace specdec
