#pragma once

namespace metal {

float simd_shuffle(float number, ushort lane);
float simd_shuffle_xor(float number, ushort mask);
int32_t simd_shuffle_xor(int32_t number, ushort mask);
float simd_max(float number);
int32_t simd_min(int32_t number);
bool simd_any(bool predicate);

}  // namespace metal
