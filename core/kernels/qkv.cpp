#include "core/kernels/qkv.h"

#include <ATen/ATen.h>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

/// Pages hold numbers of type Kv: T, or bfloat16 beside float32.
template <class T, class Kv>
struct QkvTask {
  const T *qkv, *q_scale, *k_scale, *cos, *sin;
  T* queries;
  Kv *keys, *values;
  const int32_t *rows, *slots, *angles, *page_table;
  int64_t row_capacity, page_size;
  int64_t nodes, heads, kv_heads, head_dim;
  int64_t kv_projections;
  bool value_norm;
  T eps;

  int64_t width() const { return (heads + kv_projections * kv_heads) * head_dim; }
};

template <class T>
struct HeadTask {
  const T* input;  ///< [2 * half]
  const T* scale;  ///< [2 * half] or nullptr
  const T* cos;    ///< [half]
  const T* sin;
  int64_t half;
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/simd/qkv_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

constexpr double kNanosecondsPerNumber = 0.5;

template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

template <class T, class Kv>
void run(const Tensor& qkv, const QkvOptions& options, const KvView& view, Tensor& queries) {
  const BatchTables& tables = *view.tables;
  QkvTask<T, Kv> task;
  task.qkv = qkv.const_data_ptr<T>();
  task.q_scale = data_or_null<T>(options.q_scale);
  task.k_scale = data_or_null<T>(options.k_scale);
  task.cos = options.cos.const_data_ptr<T>();
  task.sin = options.sin.const_data_ptr<T>();
  task.queries = queries.mutable_data_ptr<T>();
  task.keys = view.keys.mutable_data_ptr<Kv>();
  task.values = view.values.mutable_data_ptr<Kv>();
  task.rows = tables.rows.const_data_ptr<int32_t>();
  task.slots = tables.slots.const_data_ptr<int32_t>();
  task.angles = tables.angles.const_data_ptr<int32_t>();
  task.page_table = tables.page_table.const_data_ptr<int32_t>();
  task.row_capacity = tables.page_table.size(1);
  task.page_size = view.page_size();
  task.nodes = tables.nodes;
  task.heads = options.heads;
  task.kv_heads = view.kv_heads();
  task.head_dim = view.head_dim();
  task.kv_projections = options.kv_projections;
  task.value_norm = options.value_norm;
  task.eps = static_cast<T>(options.eps);
  for (int64_t node = 0; node < task.nodes; ++node) {
    SPECDEC_CHECK(task.angles[node] < options.cos.size(0),
                  "qkv_to_cache: position {} of a rotary table of {}", task.angles[node],
                  options.cos.size(0));
  }
  const int64_t grain =
      tile_grain(task.nodes, kNanosecondsPerNumber * static_cast<double>(qkv.size(1)));
  parallel_tiles(task.nodes, grain, [&](int64_t begin, int64_t end) {
    SPECDEC_SIMD_CALL(qkv_nodes, task, begin, end);
  });
}

void check(const Tensor& qkv, const QkvOptions& options, const KvView& view,
           const Tensor& queries) {
  check_cpu(qkv);
  SPECDEC_CHECK(view.tables != nullptr && view.values.dim() == 4, "qkv_to_cache: no cache");
  const at::ScalarType dtype = qkv.scalar_type();
  const int64_t nodes = view.tables->nodes;
  const int64_t head_dim = view.head_dim();
  SPECDEC_CHECK(options.kv_projections >= 0 && options.kv_projections <= 2,
                "qkv_to_cache: {} projections of keys and values", options.kv_projections);
  const int64_t width = (options.heads + options.kv_projections * view.kv_heads()) * head_dim;
  SPECDEC_CHECK(is_float_or_double(qkv) && is_plain(qkv, dtype) && is_plain(queries, dtype) &&
                    is_plain(view.keys, view.dtype(dtype)) &&
                    is_plain(view.values, view.dtype(dtype)) && is_plain(options.cos, dtype) &&
                    is_plain(options.sin, dtype),
                "qkv_to_cache: operands should be contiguous, all float32 or all float64");
  SPECDEC_CHECK(qkv.dim() == 2 && qkv.size(0) == nodes && qkv.size(1) == width,
                "qkv_to_cache: qkv should be [{}, {}]", nodes, width);
  SPECDEC_CHECK(queries.numel() == nodes * options.heads * head_dim,
                "qkv_to_cache: queries should be [{}, {}, {}]", nodes, options.heads, head_dim);
  SPECDEC_CHECK(head_dim % 2 == 0 && options.cos.dim() == 2 &&
                    options.cos.size(1) == head_dim / 2 &&
                    options.sin.sizes() == options.cos.sizes(),
                "qkv_to_cache: cos and sin should be [positions, {}]", head_dim / 2);
  for (const Tensor* scale : {&options.q_scale, &options.k_scale}) {
    SPECDEC_CHECK(!scale->defined() || (is_plain(*scale, dtype) && scale->numel() == head_dim),
                  "qkv_to_cache: the norms of q and k should be [{}]", head_dim);
  }
}

}  // namespace

void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                  Tensor& queries) {
  check(qkv, options, view, queries);
  if (qkv.scalar_type() == at::kDouble) {
    run<double, double>(qkv, options, view, queries);
  } else if (view.format == KvFormat::kBFloat16) {
    run<float, at::BFloat16>(qkv, options, view, queries);
  } else {
    run<float, float>(qkv, options, view, queries);
  }
}

}  // namespace specdec
