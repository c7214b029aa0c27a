#include "core/transformer/rope_table.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace specdec {

Tensor rope_frequencies(const RopeConfig& rope, int64_t head_dim,
                        const at::TensorOptions& options) {
  const int64_t dims = rope.exponent_dims > 0 ? rope.exponent_dims : head_dim;
  const auto exponent = at::arange(0, head_dim, 2, options) / dims;
  const auto frequencies = at::pow(rope.theta, exponent).reciprocal() / rope.factor;
  if (rope.rotated_pairs > 0) {  // the others stay as they are: cos 0 = 1, sin 0 = 0
    frequencies.narrow(0, rope.rotated_pairs, frequencies.size(0) - rope.rotated_pairs).zero_();
  }
  return rope.divisors.empty() ? frequencies : frequencies / at::tensor(rope.divisors, options);
}

int64_t rope_positions(int64_t positions, int64_t length) {
  return length <= positions ? positions : std::max<int64_t>({length, 2 * positions, 512});
}

RopeTable::RopeTable(const RopeConfig& rope, int64_t head_dim, const at::TensorOptions& options)
    : rope_(rope), head_dim_(head_dim), options_(options) {}

bool RopeTable::reserve(int64_t length) {
  const int64_t have = cos_.defined() ? cos_.size(0) : 0;
  if (length <= have) {
    return false;
  }
  const int64_t positions = rope_positions(have, length);
  // In the activations' dtype throughout, as the reference computes it, and on the CPU: the same
  // numbers on every device.
  const at::TensorOptions options = options_.device(at::kCPU);
  const auto frequency = rope_frequencies(rope_, head_dim_, options);
  const auto angle = at::arange(positions, options).unsqueeze(1) * frequency.unsqueeze(0);
  cos_ = angle.cos().to(options_.device());
  sin_ = angle.sin().to(options_.device());
  return true;
}

bool RopeTable::serves(const RopeConfig& rope, int64_t head_dim) const {
  return rope == rope_ && head_dim == head_dim_;
}

}  // namespace specdec
