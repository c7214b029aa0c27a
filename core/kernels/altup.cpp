#include "core/kernels/altup.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

constexpr double kNanosecondsPerNumber = 1.0;
/// Streams are few: a token's coefficients lie on the stack.
constexpr int64_t kMaxStreams = 8;
/// Smallest mean of squares that match_rms divides by.
constexpr double kSmallestSquare = 1e-5;

template <class T>
using Coefficients = std::array<T, static_cast<size_t>(kMaxStreams* kMaxStreams)>;

/// body(row) for each token, with so many numbers to read.
template <class Body>
void for_tokens(int64_t tokens, int64_t numbers, const Body& body) {
  const int64_t grain = tile_grain(tokens, kNanosecondsPerNumber * static_cast<double>(numbers));
  parallel_tiles(tokens, grain, [&body](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      body(row);
    }
  });
}

template <class T>
T mean_square(const T* values, int64_t size) {
  T squares = 0;
  for (int64_t i = 0; i < size; ++i) {
    squares += values[i] * values[i];
  }
  return squares / static_cast<T>(size);
}

/// out = matrix [rows, columns] * values.
template <class T>
void multiply(const T* matrix, const T* values, int64_t rows, int64_t columns, T* out) {
  for (int64_t row = 0; row < rows; ++row) {
    out[row] = 0;
    for (int64_t i = 0; i < columns; ++i) {
      out[row] += matrix[row * columns + i] * values[i];
    }
  }
}

template <class T>
void route_tokens(const Tensor& input, const AltUpRouter& router, const Tensor& out) {
  const int64_t hidden = input.size(1);
  const int64_t streams = out.size(1);
  const T* norm = router.norm.const_data_ptr<T>();
  const T* weight = router.weight.const_data_ptr<T>();
  for_tokens(input.size(0), hidden * streams, [&](int64_t row) {
    const T* x = input.const_data_ptr<T>() + row * hidden;
    const T factor = 1 / std::sqrt(mean_square(x, hidden) + static_cast<T>(router.eps));
    for (int64_t stream = 0; stream < streams; ++stream) {
      T sum = 0;
      for (int64_t i = 0; i < hidden; ++i) {
        sum += x[i] * factor * norm[i] * weight[stream * hidden + i];
      }
      out.mutable_data_ptr<T>()[row * streams + stream] = std::tanh(sum);
    }
  });
}

template <class T>
void predict_tokens(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                    const Tensor& out) {
  const int64_t count = streams.size(0);
  const int64_t stride = streams.size(1) * streams.size(2);
  const int64_t hidden = streams.size(2);
  for_tokens(streams.size(1), count * count * hidden, [&](int64_t row) {
    Coefficients<T> shares;
    multiply(coefficients.const_data_ptr<T>(), routes.const_data_ptr<T>() + row * count,
             count * count, count, shares.data());
    const T* from = streams.const_data_ptr<T>() + row * hidden;
    for (int64_t p = 0; p < count; ++p) {
      T* to = out.mutable_data_ptr<T>() + p * stride + row * hidden;
      std::copy(from + p * stride, from + p * stride + hidden, to);
      for (int64_t q = 0; q < count; ++q) {
        const T share = shares[static_cast<size_t>(p * count + q)];
        const T* other = from + q * stride;
        for (int64_t i = 0; i < hidden; ++i) {
          to[i] += share * other[i];
        }
      }
    }
  });
}

template <class T>
void correct_tokens(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                    int64_t active, const Tensor& streams) {
  const int64_t count = streams.size(0);
  const int64_t stride = streams.size(1) * streams.size(2);
  const int64_t hidden = streams.size(2);
  for_tokens(streams.size(1), count * hidden, [&](int64_t row) {
    Coefficients<T> shares;
    multiply(coefficients.const_data_ptr<T>(), routes.const_data_ptr<T>() + row * count, count,
             count, shares.data());
    const T* made = activated.const_data_ptr<T>() + row * hidden;
    T* first = streams.mutable_data_ptr<T>() + row * hidden;
    for (int64_t i = 0; i < hidden; ++i) {
      const T innovation = made[i] - first[active * stride + i];
      for (int64_t p = 0; p < count; ++p) {
        first[p * stride + i] += (shares[static_cast<size_t>(p)] + 1) * innovation;
      }
    }
  });
}

template <class T>
void match_rows(const Tensor& like, const Tensor& values) {
  const int64_t hidden = like.size(1);
  for_tokens(like.size(0), 2 * hidden, [&](int64_t row) {
    T* x = values.mutable_data_ptr<T>() + row * hidden;
    const T wanted = std::sqrt(mean_square(like.const_data_ptr<T>() + row * hidden, hidden));
    const T found = std::sqrt(std::max(mean_square(x, hidden), static_cast<T>(kSmallestSquare)));
    for (int64_t i = 0; i < hidden; ++i) {
      x[i] = x[i] * wanted / found;
    }
  });
}

template <class T>
void mean_tokens(const Tensor& streams, const Tensor& out) {
  const int64_t count = streams.size(0);
  const int64_t stride = out.numel();
  const int64_t hidden = out.size(1);
  for_tokens(out.size(0), count * hidden, [&](int64_t row) {
    const T* from = streams.const_data_ptr<T>() + row * hidden;
    T* to = out.mutable_data_ptr<T>() + row * hidden;
    for (int64_t i = 0; i < hidden; ++i) {
      T sum = 0;
      for (int64_t p = 0; p < count; ++p) {
        sum += from[p * stride + i];
      }
      to[i] = sum / static_cast<T>(count);
    }
  });
}

void check(const char* op, std::initializer_list<Tensor> operands) {
  const Tensor& first = *operands.begin();
  check_cpu(first);
  for (const Tensor& operand : operands) {
    SPECDEC_CHECK(is_float_or_double(first) && is_plain(operand, first.scalar_type()),
                  "{}: operands should be contiguous, all float32 or all float64", op);
  }
}

void check_streams(const char* op, const Tensor& streams, const Tensor& routes) {
  SPECDEC_CHECK(streams.dim() == 3 && streams.size(0) <= kMaxStreams && routes.dim() == 2 &&
                    routes.size(0) == streams.size(1) && routes.size(1) == streams.size(0),
                "{}: streams should be [streams, n, hidden], at most {}, routes [n, streams]", op,
                kMaxStreams);
}

bool is_double(const Tensor& tensor) { return tensor.scalar_type() == at::kDouble; }

}  // namespace

void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) {
  check("altup_route", {input, router.weight, router.norm, out});
  SPECDEC_CHECK(input.dim() == 2 && out.dim() == 2 && out.size(0) == input.size(0) &&
                    router.weight.numel() == out.size(1) * input.size(1) &&
                    router.norm.numel() == input.size(1),
                "altup_route: input should be [n, hidden], out [n, streams]");
  is_double(input) ? route_tokens<double>(input, router, out)
                   : route_tokens<float>(input, router, out);
}

void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                   Tensor& out) {
  check("altup_predict", {streams, routes, coefficients, out});
  check_streams("altup_predict", streams, routes);
  const int64_t count = streams.size(0);
  SPECDEC_CHECK(coefficients.numel() == count * count * count && out.sizes() == streams.sizes(),
                "altup_predict: coefficients should be [{}, {}]", count * count, count);
  is_double(streams) ? predict_tokens<double>(streams, routes, coefficients, out)
                     : predict_tokens<float>(streams, routes, coefficients, out);
}

void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                   int64_t active, Tensor& streams) {
  check("altup_correct", {streams, activated, routes, coefficients});
  check_streams("altup_correct", streams, routes);
  SPECDEC_CHECK(coefficients.numel() == streams.size(0) * streams.size(0) && active >= 0 &&
                    active < streams.size(0) &&
                    activated.numel() * streams.size(0) == streams.numel(),
                "altup_correct: coefficients should be [streams, streams], activated [n, hidden]");
  is_double(streams) ? correct_tokens<double>(activated, routes, coefficients, active, streams)
                     : correct_tokens<float>(activated, routes, coefficients, active, streams);
}

void match_rms(const Tensor& like, Tensor& values) {
  check("match_rms", {like, values});
  SPECDEC_CHECK(like.dim() == 2 && values.sizes() == like.sizes(),
                "match_rms: both should be [n, hidden]");
  is_double(like) ? match_rows<double>(like, values) : match_rows<float>(like, values);
}

void mean_stream(const Tensor& streams, Tensor& out) {
  check("mean_stream", {streams, out});
  SPECDEC_CHECK(streams.dim() == 3 && out.dim() == 2 &&
                    out.numel() * streams.size(0) == streams.numel() &&
                    out.size(1) == streams.size(2),
                "mean_stream: streams should be [streams, n, hidden], out [n, hidden]");
  is_double(streams) ? mean_tokens<double>(streams, out) : mean_tokens<float>(streams, out);
}

}  // namespace specdec
