#pragma once
#include "core/kernels/device/portable.h"

namespace specdec {

/// What the numbers in the pages of a cache are, rounded when they are written and widened,
/// exactly, when they are read. All but kNative stand beside float32 activations. The CPU and CUDA
/// have all of them, Metal all but kQ3 and kKivi.
enum class KvFormat : int32_t {
  kNative,    ///< of the activations' dtype; float32 on devices
  kBFloat16,  ///< to the nearest, ties to even
  kFloat16,   ///< likewise, at most 65504
  kFp8E4m3,   ///< likewise, at most 448 (Micikevicius et al., 2022, arXiv:2209.05433)
  kQ8,        ///< 8-bit integers times a float16 scale of 32 dimensions of a head
  kQ4,        ///< 4-bit integers, likewise
  kQ3,        ///< one of eight levels, likewise; see kNormalLevels
  /// 8-bit integers, likewise, in two halves, of which the upper one is a 4-bit integer that can be
  /// read alone (QuantSpec: Tiwari et al., 2025, arXiv:2502.10424)
  kHierarchical,
  /// 2-bit codes between the smallest and the largest number of a group: of keys those of a channel
  /// in kKeyGroup neighbouring tokens, of values those of kKvGroup dimensions of a token (KIVI: Liu
  /// et al., 2024, arXiv:2402.02750); see core/kernels/key_groups.h.
  kKivi2,
  kKivi4,  ///< 4-bit codes, likewise
};

}  // namespace specdec
