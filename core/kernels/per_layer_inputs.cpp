#include "core/kernels/per_layer_inputs.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

constexpr double kNanosecondsPerNumber = 1.0;

template <class T>
struct PerLayerTask {
  const T *context, *token, *norm;
  T* out;
  int64_t nodes, layers, size;
  T eps, context_scale;
};

template <class T>
void make_input(const PerLayerTask<T>& task, int64_t node, int64_t layer) {
  const int64_t from = (node * task.layers + layer) * task.size;
  const T* context = task.context + from;
  const T* token = task.token + from;
  T* out = task.out + (layer * task.nodes + node) * task.size;
  T squares = 0;
  for (int64_t i = 0; i < task.size; ++i) {
    const T x = context[i] * task.context_scale;
    squares += x * x;
  }
  const T factor = 1 / std::sqrt(squares / static_cast<T>(task.size) + task.eps);
  const auto half = static_cast<T>(M_SQRT1_2);
  for (int64_t i = 0; i < task.size; ++i) {
    out[i] = (context[i] * task.context_scale * factor * task.norm[i] + token[i]) * half;
  }
}

template <class T>
void run(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
         const Tensor& out) {
  const PerLayerTask<T> task{context.const_data_ptr<T>(),
                             token.const_data_ptr<T>(),
                             options.norm.const_data_ptr<T>(),
                             out.mutable_data_ptr<T>(),
                             out.size(1),
                             out.size(0),
                             out.size(2),
                             static_cast<T>(options.eps),
                             static_cast<T>(options.context_scale)};
  const int64_t tiles = task.nodes * task.layers;
  const int64_t grain = tile_grain(tiles, kNanosecondsPerNumber * static_cast<double>(task.size));
  parallel_tiles(tiles, grain, [&task](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      make_input(task, tile / task.layers, tile % task.layers);
    }
  });
}

}  // namespace

void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                      Tensor& out) {
  check_cpu(context);
  const at::ScalarType dtype = context.scalar_type();
  SPECDEC_CHECK(is_float_or_double(context) && is_plain(context, dtype) && is_plain(token, dtype) &&
                    is_plain(options.norm, dtype) && is_plain(out, dtype),
                "per_layer_inputs: operands should be contiguous, all float32 or all float64");
  SPECDEC_CHECK(out.dim() == 3 && context.dim() == 2 && token.sizes() == context.sizes() &&
                    context.size(0) == out.size(1) &&
                    context.size(1) == out.size(0) * out.size(2) &&
                    options.norm.numel() == out.size(2),
                "per_layer_inputs: context and token should be [n, layers * size], out [layers, n, "
                "size], the norm [size]");
  if (dtype == at::kDouble) {
    run<double>(context, token, options, out);
  } else {
    run<float>(context, token, options, out);
  }
}

}  // namespace specdec
