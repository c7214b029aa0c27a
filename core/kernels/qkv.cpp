#include "core/kernels/qkv.h"

#include <ATen/ATen.h>

#include <array>
#include <span>
#include <vector>

#include "core/kernels/checks.h"
#include "core/kernels/hadamard.h"
#include "core/kernels/key_groups.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

/// Pages that keys and values are written into.
struct WrittenPages {
  WrittenPages(const Tensor& keys, const Tensor& values, KvFormat format, const int32_t* page_table)
      : format(format),
        keys(static_cast<char*>(keys.mutable_data_ptr())),
        values(static_cast<char*>(values.mutable_data_ptr())),
        element_bytes(static_cast<int64_t>(values.element_size())),
        width(values.size(3)),
        page_table(page_table) {}

  KvFormat format;
  char *keys, *values;
  int64_t element_bytes, width;  ///< width: elements of a key or value
  const int32_t* page_table;
};

template <class T>
struct QkvTask {
  const T *qkv, *q_scale, *k_scale, *cos, *sin;
  T* queries;
  const KvView* view;
  bool rotates;  ///< keys, queries and values with KvRotation::kHadamard
  std::span<const WrittenPages> forms;
  const int32_t *rows, *slots, *angles;
  int64_t table_stride, page_size;
  int64_t nodes, heads, kv_heads, head_dim;
  int64_t kv_projections;
  bool value_norm;
  T eps;

  int64_t input_width() const { return (heads + kv_projections * kv_heads) * head_dim; }
};

template <class T>
struct HeadTask {
  const T* input;  ///< [2 * half]
  const T* scale;  ///< [2 * half] or nullptr
  const T* cos;    ///< [half]
  const T* sin;
  int64_t half;
};

/// Writes a head of the type of the activations, which a cache may hold too, or rounds it.
void write_head(KvFormat format, const float* head, int64_t head_dim, const KvElements& to) {
  encode_kv(format, head, head_dim, to);
}

void write_head(KvFormat /*format*/, const double* head, int64_t head_dim, const KvElements& to) {
  for (int64_t i = 0; i < head_dim; ++i) {
    static_cast<double*>(to.data)[i * to.stride] = head[i];
  }
}

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

template <class T>
void run(const Tensor& qkv, const QkvOptions& options, const KvView& view, Tensor& queries) {
  const BatchTables& tables = *view.tables;
  QkvTask<T> task;
  task.qkv = qkv.const_data_ptr<T>();
  task.q_scale = data_or_null<T>(options.q_scale);
  task.k_scale = data_or_null<T>(options.k_scale);
  task.cos = options.cos.const_data_ptr<T>();
  task.sin = options.sin.const_data_ptr<T>();
  task.queries = queries.mutable_data_ptr<T>();
  task.view = &view;
  task.rotates = view.rotation == KvRotation::kHadamard;
  const ExactPages& exact = view.exact;
  const bool has_exact = exact.recent > 0;
  const WrittenPages pages(view.keys, view.values, view.format, view.page_table());
  const std::array forms = {
      pages,
      has_exact ? WrittenPages(exact.keys, exact.values, KvFormat::kNative, view.exact_page_table())
                : pages};
  task.forms = {forms.data(), has_exact ? 2U : 1U};
  task.rows = tables.rows.const_data_ptr<int32_t>();
  task.slots = tables.slots.const_data_ptr<int32_t>();
  task.angles = tables.angles.const_data_ptr<int32_t>();
  task.table_stride = view.page_stride();
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
    thread_local std::vector<T> head;
    head.resize(static_cast<size_t>(task.head_dim));
    SPECDEC_SIMD_CALL(qkv_nodes, task, begin, end, head.data());
  });
  if (kv_key_group(view.format) > 1 && options.kv_projections > 0) {
    round_keys(view);
  }
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
  const at::ScalarType elements = kv_element_type(view.format, dtype);
  SPECDEC_CHECK(is_float_or_double(qkv) && is_plain(qkv, dtype) && is_plain(queries, dtype) &&
                    is_plain(view.keys, elements) && is_plain(view.values, elements) &&
                    is_plain(options.cos, dtype) && is_plain(options.sin, dtype),
                "qkv_to_cache: operands should be contiguous, all float32 or all float64");
  SPECDEC_CHECK(view.exact.recent == 0 ||
                    (is_plain(view.exact.keys, dtype) && is_plain(view.exact.values, dtype)),
                "qkv_to_cache: exact pages should be of the activations' dtype");
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
    run<double>(qkv, options, view, queries);
  } else {
    run<float>(qkv, options, view, queries);
  }
}

}  // namespace specdec
