#include "core/kernels/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/kernels/checks.h"
#include "core/kernels/storage.h"

namespace specdec {
namespace {

template <class T, class Weight>
struct LinearTask {
  const T* input;
  const Weight* weight;
  T* out;
  int64_t nodes;
  int64_t in;
  int64_t out_size;
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/linear_simd.h"
#include "core/kernels/for_each_simd.h"

namespace specdec {
namespace {

/// Multiplications that are worth a second thread.
constexpr int64_t kParallelWork = 200'000;

template <class T, class Weight>
void run_rows(const LinearTask<T, Weight>& task, int64_t begin, int64_t end) {
  SPECDEC_SIMD_CALL(linear_rows, task, begin, end);
}

/// Splits the nodes, so that the inputs of a block stay in the cache beside the weight rows.
template <class T, class Weight>
void run(const LinearTask<T, Weight>& task) {
  for (int64_t node = 0; node < task.nodes; node += kRowInvariantRows) {
    LinearTask<T, Weight> block = task;
    block.input += node * task.in;
    block.out += node * task.out_size;
    block.nodes = std::min(kRowInvariantRows, task.nodes - node);
    const int64_t work_per_row = std::max<int64_t>(1, block.nodes * block.in);
    if (work_per_row * block.out_size < kParallelWork || at::get_num_threads() == 1) {
      run_rows(block, 0, block.out_size);
      continue;
    }
    const int64_t grain = std::max<int64_t>(8, kParallelWork / 2 / work_per_row);
    at::parallel_for(0, block.out_size, grain,
                     [&](int64_t begin, int64_t end) { run_rows(block, begin, end); });
  }
}

template <class T>
void run_weight(const Tensor& input, const Tensor& weight, Tensor& out) {
  const auto task = [&]<class Weight>(const Weight* data) {
    run(LinearTask<T, Weight>{input.const_data_ptr<T>(), data, out.mutable_data_ptr<T>(),
                              input.size(0), input.size(1), weight.size(0)});
  };
  switch (weight.scalar_type()) {
    case at::kBFloat16:
      return task(static_cast<const Bf16*>(weight.const_data_ptr()));
    case at::kHalf:
      return task(static_cast<const Fp16*>(weight.const_data_ptr()));
    case at::kFloat:
      if constexpr (std::is_same_v<T, double>) {
        return run(LinearTask<T, float>{input.const_data_ptr<T>(), weight.const_data_ptr<float>(),
                                        out.mutable_data_ptr<T>(), input.size(0), input.size(1),
                                        weight.size(0)});
      }
      [[fallthrough]];
    default:
      return task(weight.const_data_ptr<T>());
  }
}

void check(const Tensor& input, const Tensor& weight, const Tensor& out) {
  check_cpu(input);
  SPECDEC_CHECK(input.dim() == 2 && weight.dim() == 2 && out.dim() == 2, "linear: not matrices");
  SPECDEC_CHECK(input.size(1) == weight.size(1) && out.size(0) == input.size(0) &&
                    out.size(1) == weight.size(0),
                "linear: input [{}, {}], weight [{}, {}] and out [{}, {}] do not fit",
                input.size(0), input.size(1), weight.size(0), weight.size(1), out.size(0),
                out.size(1));
  const at::ScalarType stored = weight.scalar_type();
  SPECDEC_CHECK(is_float_or_double(input) && is_plain(input, input.scalar_type()) &&
                    is_plain(out, input.scalar_type()) && is_plain(weight, stored),
                "linear: operands should be contiguous, input and out float32 or float64");
  SPECDEC_CHECK(stored == input.scalar_type() || stored == at::kFloat || stored == at::kBFloat16 ||
                    stored == at::kHalf,
                "linear: weight of dtype {} for input of dtype {}", c10::toString(stored),
                c10::toString(input.scalar_type()));
}

}  // namespace

void linear(const Tensor& input, const Tensor& weight, Tensor& out) {
  check(input, weight, out);
  if (input.scalar_type() == at::kDouble) {
    run_weight<double>(input, weight, out);
  } else {
    run_weight<float>(input, weight, out);
  }
}

Tensor product(const Tensor& input, const Tensor& weight) {
  Tensor out = at::empty({input.size(0), weight.size(0)}, input.options());
  linear(input, weight, out);
  return out;
}

}  // namespace specdec
