#include "core/formats/dtype.h"

#include <array>

namespace specdec {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  int64_t values = 1;
};
constexpr std::array<DTypeInfo, 43> kDTypeInfos = {{{DType::kF64, "F64", 8},
                                                    {DType::kF32, "F32", 4},
                                                    {DType::kF16, "F16", 2},
                                                    {DType::kBF16, "BF16", 2},
                                                    {DType::kI64, "I64", 8},
                                                    {DType::kI32, "I32", 4},
                                                    {DType::kI16, "I16", 2},
                                                    {DType::kI8, "I8", 1},
                                                    {DType::kU8, "U8", 1},
                                                    {DType::kBool, "BOOL", 1},
                                                    {DType::kF8E4M3, "F8_E4M3", 1},
                                                    {DType::kQ40, "Q4_0", 18, 32},
                                                    {DType::kQ41, "Q4_1", 20, 32},
                                                    {DType::kQ50, "Q5_0", 22, 32},
                                                    {DType::kQ51, "Q5_1", 24, 32},
                                                    {DType::kQ80, "Q8_0", 34, 32},
                                                    {DType::kQ2K, "Q2_K", 84, 256},
                                                    {DType::kQ3K, "Q3_K", 110, 256},
                                                    {DType::kQ4K, "Q4_K", 144, 256},
                                                    {DType::kQ5K, "Q5_K", 176, 256},
                                                    {DType::kQ6K, "Q6_K", 210, 256},
                                                    {DType::kIq1S, "IQ1_S", 50, 256},
                                                    {DType::kIq1M, "IQ1_M", 56, 256},
                                                    {DType::kIq2Xxs, "IQ2_XXS", 66, 256},
                                                    {DType::kIq2Xs, "IQ2_XS", 74, 256},
                                                    {DType::kIq2S, "IQ2_S", 82, 256},
                                                    {DType::kIq3Xxs, "IQ3_XXS", 98, 256},
                                                    {DType::kIq3S, "IQ3_S", 110, 256},
                                                    {DType::kIq4Nl, "IQ4_NL", 18, 32},
                                                    {DType::kIq4Xs, "IQ4_XS", 136, 256},
                                                    {DType::kTq1, "TQ1_0", 54, 256},
                                                    {DType::kTq2, "TQ2_0", 66, 256},
                                                    {DType::kMxfp4, "MXFP4", 17, 32},
                                                    {DType::kNvfp4, "NVFP4", 36, 64},
                                                    {DType::kFp8x128, "FP8_128", 132, 128},
                                                    {DType::kFp8x32, "FP8_32", 36, 32},
                                                    {DType::kInt4x128, "INT4_128", 69, 128},
                                                    {DType::kInt4x32, "INT4_32", 19, 32},
                                                    {DType::kFp4x16, "FP4_16", 12, 16},
                                                    {DType::kFp4x32, "FP4_32", 20, 32},
                                                    {DType::kNf4x32, "NF4_32", 20, 32},
                                                    {DType::kAffine8x64, "AFFINE8_64", 72, 64},
                                                    {DType::kAffine4x32, "AFFINE4_32", 20, 32}}};

const DTypeInfo& info(DType dtype) { return kDTypeInfos.at(static_cast<size_t>(dtype)); }

}  // namespace

int64_t dtype_bytes(DType dtype) { return info(dtype).bytes; }
int64_t block_values(DType dtype) { return info(dtype).values; }
bool is_block(DType dtype) { return info(dtype).values > 1; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }

}  // namespace specdec
