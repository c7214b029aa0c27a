#include "core/kernels/device/activations.h"
#include "core/kernels/metal/sizes.h"

#pragma METAL fp contract(off)

using namespace specdec;

/// activation(gate) * up of [rows, 2 * size].
kernel void gated_activation(const device float* gate_up [[buffer(0)]],
                             device float* out [[buffer(1)]],
                             constant mps::GatedSizes& sizes [[buffer(2)]],
                             uint3 group [[threadgroup_position_in_grid]],
                             uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t i = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (i >= static_cast<int64_t>(sizes.rows) * sizes.size) {
    return;
  }
  const int64_t gate = i + i / sizes.size * sizes.size;
  const float number = gate_up[gate];
  const float activated = sizes.silu != 0 ? portable::silu(number) : portable::gelu_tanh(number);
  out[i] = activated * gate_up[gate + sizes.size];
}

/// out += input.
kernel void add(const device float* input [[buffer(0)]], device float* out [[buffer(1)]],
                constant mps::ElementSizes& sizes [[buffer(2)]],
                uint3 group [[threadgroup_position_in_grid]],
                uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t i = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (i < sizes.count) {
    out[i] += input[i];
  }
}

/// Caps numbers in place.
kernel void soft_cap(device float* numbers [[buffer(0)]],
                     constant mps::ElementSizes& sizes [[buffer(1)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t i = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (i < sizes.count) {
    numbers[i] = portable::soft_cap(numbers[i], sizes.number);
  }
}

/// Copies rows to columns of wider ones, times a factor and a scale of each column.
kernel void copy_rows(const device float* input [[buffer(0)]],
                      const device float* scale [[buffer(1)]], device float* out [[buffer(2)]],
                      constant mps::CopySizes& sizes [[buffer(3)]],
                      uint3 group [[threadgroup_position_in_grid]],
                      uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t i = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (i >= static_cast<int64_t>(sizes.rows) * sizes.columns) {
    return;
  }
  const int64_t row = i / sizes.columns;
  const int64_t column = i - row * sizes.columns;
  const float number = sizes.factor * input[i];
  out[row * sizes.out_stride + column] = sizes.scaled != 0 ? number * scale[column] : number;
}
