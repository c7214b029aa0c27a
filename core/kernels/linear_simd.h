// The matrix product of core/kernels/linear.cpp; see core/kernels/for_each_simd.h.

/// Partial sums of the dot products of R weight rows with N input rows, at [n * R + r]. Each is one
/// vector, filled from the first element to the last, so that its value depends on neither R nor N.
template <int R, int N, class T, class Weight>
inline void dot_block(const LinearTask<T, Weight>& task, int64_t row, int64_t node, Vec<T>* parts) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t in = task.in;
  const T* input = task.input + node * in;
  const Weight* weight = task.weight + row * in;
  // The rows that the next blocks read; hardware prefetch alone starts anew at each of them.
  constexpr int kAhead = N == 1 ? R : kCount;
  const Weight* next = weight + (row + kAhead + R <= task.out_size ? kAhead * in : 0);
  Vec<T> sums[N][R] = {};
  int64_t k = 0;
  for (; k + kCount <= in; k += kCount) {
    Vec<T> w[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      w[r] = load_widened<T>(weight + r * in + k);
      __builtin_prefetch(next + r * in + k);
    }
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const Vec<T> x = load(input + n * in + k);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        sums[n][r] += w[r] * x;
      }
    }
  }
  if (k < in) {
    for (int n = 0; n < N; ++n) {
      const Vec<T> x = load_part(input + n * in + k, in - k);
      for (int r = 0; r < R; ++r) {
        sums[n][r] += load_widened_part<T>(weight + r * in + k, in - k) * x;
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < N * R; ++i) {
    parts[i] = sums[i / R][i % R];
  }
}

/// One vector of results, or the first of it: N nodes, R weight rows.
template <int R, int N, class T, class Weight>
inline void product_block(const LinearTask<T, Weight>& task, int64_t row, int64_t node) {
  constexpr int kCount = Lanes<T>::kCount;
  Vec<T> parts[kCount] = {};
  if constexpr (N == 1 && R > 4) {  // few rows at a time: few streams for the prefetcher
#pragma GCC unroll 4
    for (int r = 0; r < R; r += 4) {
      dot_block<4, 1>(task, row + r, node, parts + r);
    }
  } else {
    dot_block<R, N>(task, row, node, parts);
  }
  T lanes[kCount];
  store<T>(lanes, sums<T>(parts));
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    std::memcpy(task.out + (node + n) * task.out_size + row, lanes + n * R, R * sizeof(T));
  }
}

/// As many weight rows as a vector has lanes, N nodes.
template <int N, class T, class Weight>
inline void product_rows(const LinearTask<T, Weight>& task, int64_t row, int64_t node) {
  constexpr int kCount = Lanes<T>::kCount;
  constexpr int kRows = kCount / N;
  constexpr int kLeft = kCount % kRows;
  for (int r = 0; r + kRows <= kCount; r += kRows) {
    product_block<kRows, N>(task, row + r, node);
  }
  if constexpr (kLeft > 0) {
    product_block<kLeft, N>(task, row + kCount - kLeft, node);
  }
}

/// The same for the next nodes, as many as one pass over the weights takes; returns how many.
template <class T, class Weight>
inline int64_t product_nodes(const LinearTask<T, Weight>& task, int64_t row, int64_t node) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t left = task.nodes - node;
  if constexpr (kCount >= 8) {
    if (left == 5) {
      product_rows<5>(task, row, node);
      return 5;
    }
  }
  if constexpr (kCount >= 4) {
    if (left >= 4) {
      product_rows<4>(task, row, node);
      return 4;
    }
    if (left == 3) {
      product_rows<3>(task, row, node);
      return 3;
    }
  }
  if (left >= 2) {
    product_rows<2>(task, row, node);
    return 2;
  }
  product_rows<1>(task, row, node);
  return 1;
}

/// Output rows begin to end of all nodes.
template <class T, class Weight>
inline void linear_rows(const LinearTask<T, Weight>& task, int64_t begin, int64_t end) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t row = begin;
  for (; row + kCount <= end; row += kCount) {
    for (int64_t node = 0; node < task.nodes;) {
      node += product_nodes(task, row, node);
    }
  }
  for (; row < end; ++row) {
    for (int64_t node = 0; node < task.nodes; ++node) {
      Vec<T> part[1];
      dot_block<1, 1>(task, row, node, part);
      task.out[node * task.out_size + row] = sum<T>(part[0]);
    }
  }
}
