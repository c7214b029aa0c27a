// The matrix product of core/kernels/linear.cpp; see core/kernels/for_each_simd.h.

/// Dot products of R weight rows with N input rows. Each has one vector of partial sums, filled
/// from the first element to the last, so its value does not depend on R and N.
template <class T, class Weight, int R, int N>
inline void dot_block(const LinearTask<T, Weight>& task, int64_t row, int64_t node) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t in = task.in;
  const T* input = task.input + node * in;
  const Weight* weight = task.weight + row * in;
  Vec<T> sums[R][N] = {};
  int64_t k = 0;
  for (; k + kCount <= in; k += kCount) {
    Vec<T> w[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      w[r] = load_widened<T>(weight + r * in + k);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const Vec<T> x = load(input + n * in + k);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][n] += w[r] * x;
      }
    }
  }
  if (k < in) {
    for (int n = 0; n < N; ++n) {
      const Vec<T> x = load_part(input + n * in + k, in - k);
      for (int r = 0; r < R; ++r) {
        sums[r][n] += load_widened_part<T>(weight + r * in + k, in - k) * x;
      }
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      task.out[(node + n) * task.out_size + row + r] = sum<T>(sums[r][n]);
    }
  }
}

template <class T, class Weight, int R>
inline void dot_rows(const LinearTask<T, Weight>& task, int64_t row) {
  constexpr int kNodes = kVectorBytes == 64 ? 6 : 2;  // R * kNodes sums stay in registers
  int64_t node = 0;
  for (; node + kNodes <= task.nodes; node += kNodes) {
    dot_block<T, Weight, R, kNodes>(task, row, node);
  }
  switch (task.nodes - node) {
    case 5:
      dot_block<T, Weight, R, 5>(task, row, node);
      break;
    case 4:
      dot_block<T, Weight, R, 4>(task, row, node);
      break;
    case 3:
      dot_block<T, Weight, R, 3>(task, row, node);
      break;
    case 2:
      dot_block<T, Weight, R, 2>(task, row, node);
      break;
    case 1:
      dot_block<T, Weight, R, 1>(task, row, node);
      break;
    default:
      break;
  }
}

/// Output rows begin to end of all nodes.
template <class T, class Weight>
inline void linear_rows(const LinearTask<T, Weight>& task, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  int64_t row = begin;
  for (; row + kRows <= end; row += kRows) {
    dot_rows<T, Weight, kRows>(task, row);
  }
  for (; row < end; ++row) {
    dot_rows<T, Weight, 1>(task, row);
  }
}
