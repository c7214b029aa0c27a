// Rounds inputs to integers, in blocks; included inside a namespace by block_product_simd.h; see
// core/kernels/simd/for_each_simd.h.

/// The lanes turned by kBy places.
template <int kBy, class V, size_t... kLane>
inline V turned(V x, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(x, x, (kLane + kBy) % sizeof...(kLane)...);
}

/// Every lane becomes the largest of all.
template <int kHalf = Lanes<float>::kCount / 2>
inline Vec<float> largest_lane(Vec<float> x) {
  x = maximum<float>(x, turned<kHalf>(x, std::make_index_sequence<Lanes<float>::kCount>()));
  if constexpr (kHalf > 1) {
    return largest_lane<kHalf / 2>(x);
  }
  return x;
}

/// Every lane becomes the sum of all.
template <int kHalf = Lanes<float>::kCount / 2, class V>
inline V sum_of_lanes(V x) {
  x += turned<kHalf>(x, std::make_index_sequence<Lanes<float>::kCount>());
  if constexpr (kHalf > 1) {
    return sum_of_lanes<kHalf / 2>(x);
  }
  return x;
}

/// Whether codes of eight bits are multiplied with 128 taken off: then magnitudes are multiplied,
/// and inputs take the codes' signs.
constexpr bool kSignsBytes = kVectorBytes == 32;

/// Quantises `count` inputs, up to a block; the rest of it is zero. A value that is not a number
/// makes the scale one that is not.
inline void quantize_block(const float* input, int64_t count, const CodeSums& wanted,
                           QuantizedBlock& to) {
  constexpr int kCount = Lanes<float>::kCount;
  constexpr int kVectors = kBlockInputs / kCount;
  typedef int8_t Bytes __attribute__((vector_size(kCount)));
  float padded[kBlockInputs] = {};
  if (count < kBlockInputs) {
    std::memcpy(padded, input, static_cast<size_t>(count) * sizeof(float));
    input = padded;
  }
  Vec<float> largest = {};
  Vec<float> faults = {};
#pragma GCC unroll 8
  for (int64_t i = 0; i < kVectors; ++i) {
    const Vec<float> x = load(input + i * kCount);
    largest = maximum<float>(maximum<float>(x, -x), largest);
    faults += x - x;
  }
  const float top = largest_lane(largest)[0];
  constexpr float kSmallest = 1e-30F;  // the inverse of less may be infinite
  const float inverse = top < kSmallest ? 0.0F : 127.0F / top;
  to.scale = top / 127.0F + sum_of_lanes(faults)[0];
  Ints totals[2] = {};  // of the halves
  auto* bytes = reinterpret_cast<int8_t*>(to.words);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kVectors; ++i) {
    const Vec<float> x = load(input + i * kCount);
    const Vec<float> shifted =
        fused<float>(x, splat(inverse), splat(Lanes<float>::kRound));  // rounds to an integer
    const Ints values = same_bits<Ints>(shifted) - same_bits<Ints>(splat(Lanes<float>::kRound));
    const Bytes narrow = __builtin_convertvector(values, Bytes);
    std::memcpy(bytes + i * kCount, &narrow, sizeof narrow);
    totals[2 * i / kVectors] += __builtin_convertvector(narrow, Ints);
  }
  const int32_t sum = sum_of_lanes(totals[0] + totals[1])[0];
  const int32_t first = wanted.in_halves ? sum_of_lanes(totals[0])[0] : sum;
  to.scaled_sums[0] = static_cast<float>(first) * to.scale;
  to.scaled_sums[1] = static_cast<float>(sum - first) * to.scale;
  const int32_t offset = wanted.offset - (kSignsBytes && wanted.in_bytes ? 128 : 0);
  to.starts[0] = -offset * first;
  to.starts[1] = -offset * (sum - first);
}

inline void quantize_rows(const float* input, int64_t nodes, int64_t in, const CodeSums& wanted,
                          QuantizedBlock* to) {
  for (int64_t k = 0; k < in; k += kBlockInputs) {
    for (int64_t node = 0; node < nodes; ++node) {
      quantize_block(input + node * in + k, std::min(kBlockInputs, in - k), wanted, *to++);
    }
  }
}
