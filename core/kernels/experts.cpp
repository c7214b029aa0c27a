#include "core/kernels/experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "core/kernels/checks.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

constexpr double kNanosecondsPerNumber = 0.3;

/// One token: fills `experts` and `weights`.
template <class T>
void route_row(std::span<const T> logits, const T* scale, std::span<int32_t> experts, T* weights) {
  thread_local std::vector<int32_t> order;  // of all experts
  order.resize(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&logits](int32_t a, int32_t b) {
    const T left = logits[static_cast<size_t>(a)];
    const T right = logits[static_cast<size_t>(b)];
    return left > right || (left == right && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(experts.size()),
                    order.end(), likelier);
  // The denominator of the softmax over all experts cancels out.
  const T largest = logits[static_cast<size_t>(order[0])];
  T total = 0;
  for (size_t i = 0; i < experts.size(); ++i) {
    experts[i] = order[i];
    weights[i] = std::exp(logits[static_cast<size_t>(order[i])] - largest);
    total += weights[i];
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    weights[i] = weights[i] / total * scale[experts[i]];
  }
}

template <class T>
void route_rows(const Tensor& logits, const Tensor& scale, Routes& routes) {
  const auto count = static_cast<size_t>(logits.size(1));
  const auto chosen = static_cast<size_t>(routes.experts.size(1));
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const auto index = static_cast<size_t>(row);
    route_row<T>({logits.const_data_ptr<T>() + index * count, count}, scale.const_data_ptr<T>(),
                 {routes.experts.mutable_data_ptr<int32_t>() + index * chosen, chosen},
                 routes.weights.mutable_data_ptr<T>() + index * chosen);
  }
}

/// Sorts the pairs by expert, tokens in order: sets places and ends.
void sort_pairs(const Routes& routes, int64_t experts, ExpertBuffers& buffers) {
  const int32_t* expert = routes.experts.const_data_ptr<int32_t>();
  const auto pairs = static_cast<size_t>(routes.experts.numel());
  buffers.ends.assign(static_cast<size_t>(experts) + 1, 0);
  for (size_t pair = 0; pair < pairs; ++pair) {
    ++buffers.ends[static_cast<size_t>(expert[pair]) + 1];
  }
  std::partial_sum(buffers.ends.begin(), buffers.ends.end(), buffers.ends.begin());
  buffers.places.resize(pairs);
  for (size_t pair = 0; pair < pairs; ++pair) {  // ends[e] is where e begins, until it is filled
    buffers.places[pair] = buffers.ends[static_cast<size_t>(expert[pair])]++;
  }
  buffers.ends.pop_back();
}

void gather(const Tensor& input, int64_t chosen, ExpertBuffers& buffers) {
  const auto bytes = static_cast<size_t>(input.size(1)) * input.element_size();
  const auto* from = static_cast<const char*>(input.const_data_ptr());
  auto* to = static_cast<char*>(buffers.inputs.mutable_data_ptr());
  for (size_t pair = 0; pair < buffers.places.size(); ++pair) {
    std::memcpy(to + static_cast<size_t>(buffers.places[pair]) * bytes,
                from + pair / static_cast<size_t>(chosen) * bytes, bytes);
  }
}

template <class T>
void combine(const Routes& routes, const ExpertBuffers& buffers, Tensor& out) {
  const int64_t chosen = routes.experts.size(1);
  const int64_t hidden = out.size(1);
  const T* weights = routes.weights.const_data_ptr<T>();
  const T* outputs = buffers.outputs.const_data_ptr<T>();
  T* sums = out.mutable_data_ptr<T>();
  const int64_t grain =
      tile_grain(out.size(0), kNanosecondsPerNumber * static_cast<double>(chosen * hidden));
  parallel_tiles(out.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* sum = sums + row * hidden;
      std::fill(sum, sum + hidden, T{0});
      for (int64_t pair = row * chosen; pair < (row + 1) * chosen; ++pair) {
        const T* part = outputs + buffers.places[static_cast<size_t>(pair)] * hidden;
        const T weight = weights[pair];
        for (int64_t i = 0; i < hidden; ++i) {
          sum[i] += weight * part[i];
        }
      }
    }
  });
}

}  // namespace

void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) {
  check_cpu(logits);
  const at::ScalarType dtype = logits.scalar_type();
  SPECDEC_CHECK(is_float_or_double(logits) && is_plain(logits, dtype) &&
                    is_plain(output_scale, dtype) && is_plain(routes.weights, dtype) &&
                    is_plain(routes.experts, at::kInt),
                "route: operands should be contiguous, all float32 or all float64");
  SPECDEC_CHECK(logits.dim() == 2 && output_scale.numel() == logits.size(1) &&
                    routes.experts.dim() == 2 && routes.experts.size(0) == logits.size(0) &&
                    routes.experts.size(1) <= logits.size(1) &&
                    routes.weights.sizes() == routes.experts.sizes(),
                "route: logits should be [n, experts], output_scale [experts], routes [n, chosen]");
  if (dtype == at::kDouble) {
    route_rows<double>(logits, output_scale, routes);
  } else {
    route_rows<float>(logits, output_scale, routes);
  }
}

void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                   ExpertBuffers& buffers, Tensor& out) {
  check_cpu(input);
  SPECDEC_CHECK(input.dim() == 2 && is_plain(input, input.scalar_type()) &&
                    is_plain(out, input.scalar_type()) && out.sizes() == input.sizes() &&
                    routes.experts.size(0) == input.size(0) &&
                    buffers.inputs.size(0) >= routes.experts.numel(),
                "apply_experts: input and out should be [n, hidden], buffers as many as pairs");
  sort_pairs(routes, static_cast<int64_t>(experts.gate_up.size()), buffers);
  gather(input, routes.experts.size(1), buffers);
  RowRange pairs;
  for (size_t e = 0; e < experts.gate_up.size(); ++e) {
    pairs = {pairs.end, buffers.ends[e]};
    if (pairs.count() > 0) {
      linear_product(experts.gate_up[e], buffers.inputs, pairs, buffers.gate_up);
      gated_activation(buffers.gate_up, experts.activation, pairs, buffers.gated);
      linear_product(experts.down[e], buffers.gated, pairs, buffers.outputs);
    }
  }
  if (input.scalar_type() == at::kDouble) {
    combine<double>(routes, buffers, out);
  } else {
    combine<float>(routes, buffers, out);
  }
}

}  // namespace specdec
