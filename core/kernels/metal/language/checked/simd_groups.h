#pragma once

namespace metal {

float simd_shuffle_xor(float number, ushort mask);
int32_t simd_shuffle_xor(int32_t number, ushort mask);
float simd_max(float number);

}  // namespace metal
