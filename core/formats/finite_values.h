#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/formats/dtype.h"

namespace specdec {

/// A value of a tensor that is no finite number.
struct NotFinite {
  int64_t value = 0;    ///< which one; of blocks: the first of the block
  bool is_nan = false;  ///< else infinite
};

/// The first value that is NaN or infinite; of blocks, the first with such a scale, minimum or
/// code; none among integers and booleans. The bytes are whole elements or blocks and need no
/// alignment.
std::optional<NotFinite> first_not_finite(DType dtype, std::span<const std::byte> bytes);

}  // namespace specdec
