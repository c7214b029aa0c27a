#pragma once
// How a key or value of a head is read and written in each format of the cache. Element e lies at
// first[e * stride].
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/stored_kv.h"

namespace specdec::cuda {

/// Numbers by themselves.
template <class T>
struct FloatKv {
  using Element = T;

  /// Factor of the codes of a warp's number of dimensions, from kWarp * group on.
  __device__ static float scale(const Element*, int64_t, int, int) { return 1.0F; }
  __device__ static float code(const Element* first, int64_t stride, int d) {
    return device::widen(first[d * stride]);
  }
  /// Rounds and writes a head; the whole block, of kThreads.
  template <int kThreads>
  __device__ static void write(const float* numbers, int head_dim, Element* first, int64_t stride) {
    for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += kThreads) {
      first[d * stride] = device::narrow(numbers[d], Element{});
    }
  }
};

/// Codes of kBits, then a float16 scale of each 32 of them. As many codes as fill a byte lie in it,
/// the first in the low bits.
template <int kBits>
struct ScaledKv {
  using Element = uint8_t;
  static constexpr int kCodes = 8 / kBits;  ///< of a byte

  __device__ static float scale(const Element* first, int64_t stride, int head_dim, int group) {
    const Element* low = first + (head_dim / kCodes + 2 * group) * stride;
    return device::widen_half(static_cast<uint32_t>(low[0]) | static_cast<uint32_t>(low[stride])
                                                                  << 8U);
  }
  __device__ static float code(const Element* first, int64_t stride, int d) {
    const uint32_t codes = first[d / kCodes * stride];
    return device::code_value<kBits>(codes >> (d % kCodes * kBits) & ((1U << kBits) - 1U));
  }
  /// A group is a warp's, a number a lane's.
  template <int kThreads>
  __device__ static void write(const float* numbers, int head_dim, Element* first, int64_t stride) {
    const int lane = static_cast<int>(lane_index());
    for (int d = static_cast<int>(warp_index()) * kWarp; d < head_dim; d += kThreads) {
      const bool inside = d + lane < head_dim;
      const float number = inside ? numbers[d + lane] : 0.0F;
      const device::HalfBits bits = scale_of(number);
      const int32_t integer = device::group_code(number, bits, device::integer_codes(kBits));
      uint32_t code = static_cast<uint32_t>(integer) & ((1U << kBits) - 1U);
      if (kCodes == 2) {
        code |= __shfl_xor_sync(kAllLanes, code, 1) << kBits;
      }
      if (inside && lane % kCodes == 0) {
        first[(d + lane) / kCodes * stride] = static_cast<Element>(code);
      }
      if (lane < 2) {
        const int64_t at = head_dim / kCodes + d / kWarp * 2 + lane;
        first[at * stride] = static_cast<Element>(bits.bits >> (8 * lane));
      }
    }
  }

 private:
  static_assert(device::kScaledGroup == kWarp, "a number of a group is a lane's");

  /// Of the group whose numbers the lanes have.
  __device__ static device::HalfBits scale_of(float number) {
    const bool finite = number - number == 0.0F;
    const float magnitude = finite ? device::magnitude_of(number) : 0.0F;
    const unsigned largest = __ballot_sync(kAllLanes, magnitude == warp_largest(magnitude));
    const int first = __popc((largest & (0U - largest)) - 1U);
    const float most = __shfl_sync(kAllLanes, finite ? number : 0.0F, first);
    return device::group_scale(most, __ballot_sync(kAllLanes, !finite) == 0,
                               device::integer_codes(kBits));
  }
};

/// Number of dimension d: exactly, as a product of a code and a factor of eleven bits.
template <class Kv>
__device__ inline float number_at(const typename Kv::Element* first, int64_t stride, int head_dim,
                                  int d) {
  return Kv::code(first, stride, d) * Kv::scale(first, stride, head_dim, d / kWarp);
}

/// Calls use(kv) with a format's reader and writer; kInvalidValue for one that does not exist.
template <class Use>
int with_kv_format(CudaKv format, const Use& use) {
  switch (format) {
    case CudaKv::kFloat32:
      return use(FloatKv<float>{});
    case CudaKv::kBFloat16:
      return use(FloatKv<device::Bfloat16Bits>{});
    case CudaKv::kFloat16:
      return use(FloatKv<device::HalfBits>{});
    case CudaKv::kFp8E4m3:
      return use(FloatKv<device::Float8Bits>{});
    case CudaKv::kQ8:
      return use(ScaledKv<8>{});
    case CudaKv::kQ4:
      return use(ScaledKv<4>{});
  }
  return kInvalidValue;
}

}  // namespace specdec::cuda
