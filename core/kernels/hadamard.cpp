#include "core/kernels/hadamard.h"

#include <cmath>

namespace specdec {

template <class T>
void hadamard(T* numbers, int64_t dim) {
  const int64_t block = dim & -dim;
  for (int64_t half = 1; half < block; half *= 2) {
    for (int64_t first = 0; first < dim; first += 2 * half) {
      for (int64_t i = first; i < first + half; ++i) {
        const T low = numbers[i];
        const T high = numbers[i + half];
        numbers[i] = low + high;
        numbers[i + half] = low - high;
      }
    }
  }
  const T factor = 1 / std::sqrt(static_cast<T>(block));
  for (int64_t i = 0; i < dim; ++i) {
    numbers[i] *= factor;
  }
}

template void hadamard<float>(float*, int64_t);
template void hadamard<double>(double*, int64_t);

}  // namespace specdec
