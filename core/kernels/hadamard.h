#pragma once
#include <cstdint>

namespace specdec {

/// Multiplies a head of `dim` numbers with the orthonormal Walsh-Hadamard matrix, in place: that of
/// blocks as large as the largest power of two that divides `dim`. It spreads numbers that stick
/// out over their block before they are rounded (QuaRot: Ashkboos et al., 2024, arXiv:2404.00456).
/// The matrix is its own inverse, and the product of a query and a key that are both multiplied is
/// that of the plain ones, but for rounding. T is float or double.
template <class T>
void hadamard(T* numbers, int64_t dim);

}  // namespace specdec
