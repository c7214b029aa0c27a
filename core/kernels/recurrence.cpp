#include "core/kernels/recurrence.h"

#include <ATen/ATen.h>

#include <vector>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

template <class T>
struct RecurrenceTask {
  const T* convolution;
  const T* convolution_bias;
  const T* input_gate;
  const T* input_gate_bias;
  const T* decay_gate;
  const T* decay_gate_bias;
  const T* decay;
  const NodeState* nodes_of;  ///< [nodes]
  T* states;                  ///< of state s from s * state_size on
  int64_t state_size;
  T* branches;
  int64_t nodes, channels, width, block;
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/simd/recurrence_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

const NodeState* node_states(const NodeStates& states) {
  static_assert(sizeof(NodeState) == 3 * sizeof(int32_t));
  return reinterpret_cast<const NodeState*>(states.nodes.const_data_ptr<int32_t>());
}

template <class T>
void run(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
         Tensor& branches) {
  const auto data = [](const Tensor& tensor) { return tensor.const_data_ptr<T>(); };
  const RecurrenceTask<T> task{.convolution = data(weights.convolution),
                               .convolution_bias = data(weights.convolution_bias),
                               .input_gate = data(weights.input_gate),
                               .input_gate_bias = data(weights.input_gate_bias),
                               .decay_gate = data(weights.decay_gate),
                               .decay_gate_bias = data(weights.decay_gate_bias),
                               .decay = data(weights.decay),
                               .nodes_of = node_states(states),
                               .states = states.memory.mutable_data_ptr<T>() + offset,
                               .state_size = states.memory.size(1),
                               .branches = branches.mutable_data_ptr<T>(),
                               .nodes = branches.size(0),
                               .channels = weights.convolution.size(1),
                               .width = weights.convolution.size(0),
                               .block = weights.input_gate.size(1)};
  const int64_t blocks = weights.input_gate.size(0);
  constexpr double kNanosecondsPerProduct = 0.1;
  const double products = 2.0 * static_cast<double>(task.nodes * task.block * task.block);
  const int64_t grain = tile_grain(blocks, kNanosecondsPerProduct * products);
  parallel_tiles(blocks, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> scratch(static_cast<size_t>(3 * task.block));
    SPECDEC_SIMD_CALL(recurrence_blocks, task, begin, end, scratch.data());
  });
}

}  // namespace

void recurrence(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
                Tensor& branches) {
  check_cpu(branches);
  const at::ScalarType dtype = branches.scalar_type();
  SPECDEC_CHECK(is_float_or_double(branches) && is_plain(branches, dtype) && branches.dim() == 2 &&
                    weights.defined() && is_plain(weights.convolution, dtype) &&
                    branches.size(1) == 2 * weights.convolution.size(1),
                "recurrence: branches should be [n, 2 * channels], contiguous, both float32 or "
                "both float64");
  const int64_t channels = weights.convolution.size(1);
  SPECDEC_CHECK(weights.input_gate.dim() == 3 && weights.decay_gate.dim() == 3 &&
                    weights.input_gate.size(0) * weights.input_gate.size(1) == channels &&
                    weights.input_gate.size(1) == weights.input_gate.size(2) &&
                    weights.decay_gate.sizes() == weights.input_gate.sizes(),
                "recurrence: gates should be [blocks, size, size] of {} channels", channels);
  for (const Tensor* row : {&weights.convolution_bias, &weights.input_gate_bias,
                            &weights.decay_gate_bias, &weights.decay}) {
    SPECDEC_CHECK(is_plain(*row, dtype) && row->numel() == channels,
                  "recurrence: biases and decay should be [{}]", channels);
  }
  const int64_t nodes = branches.size(0);
  SPECDEC_CHECK(is_plain(states.nodes, at::kInt) && states.nodes.dim() == 2 &&
                    states.nodes.size(0) >= nodes && states.nodes.size(1) == 3 &&
                    is_plain(states.memory, dtype) && states.memory.dim() == 2,
                "recurrence: states should be numbers of the branches' dtype, with places of {} "
                "nodes",
                nodes);
  SPECDEC_CHECK(offset >= 0 && offset + weights.convolution.numel() <= states.memory.size(1),
                "recurrence: a layer at {} of states of {}", offset, states.memory.size(1));
  if (dtype == at::kDouble) {
    run<double>(weights, states, offset, branches);
  } else {
    run<float>(weights, states, offset, branches);
  }
}

}  // namespace specdec
