#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "core/formats/dtype.h"

namespace specdec {

/// Hands the bytes of `rows` in `dtype` (F32, F16, BF16, Q8_0) over to `write`. Throws
/// WeightsError, naming `name`, for values that the dtype cannot hold.
void encode_rows(const at::Tensor& rows, DType dtype, const std::string& name,
                 const std::function<void(std::span<const std::byte>)>& write);

/// True where no value changes.
bool is_exact(const at::Tensor& values, DType dtype);

/// The rows of each head in llama.cpp's order for architecture `llama`: 0, n/2, 1, n/2 + 1, ...
at::Tensor interleaved_rows(const at::Tensor& rows, int64_t head_dim);

}  // namespace specdec
