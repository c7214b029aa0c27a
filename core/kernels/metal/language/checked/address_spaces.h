#pragma once
// Address spaces that clang tells apart: a pointer to one is not a pointer to another.
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread

using int32_t = __INT32_TYPE__;
using int64_t = __INT64_TYPE__;
using uint8_t = __UINT8_TYPE__;
using uint16_t = __UINT16_TYPE__;
using uint32_t = __UINT32_TYPE__;
using uint64_t = __UINT64_TYPE__;
using uchar = unsigned char;
using uint = unsigned;
using ushort = unsigned short;
using half = __fp16;
using bfloat = __bf16;

namespace metal {
enum class mem_flags;
}
void threadgroup_barrier(metal::mem_flags flags);
