#include "core/kernels/block_product.h"

#include <ATen/ATen.h>

#include <vector>

#include "core/kernels/block_formats.h"

namespace specdec {
namespace {

/// What all formats have of a product.
struct BlockRows {
  const float* input;
  float* out;
  int64_t nodes;
  int64_t in;
  int64_t out_size;
  int64_t out_stride;
};

template <class Block>
struct BlockTask : BlockRows {
  const QuantizedBlock* quantized;  ///< [blocks, nodes]
  const Block* weight;              ///< [panels, blocks]
  const float* codebook;            ///< see codebook_numbers
  int64_t blocks;                   ///< of a row
  bool reads_ahead;  ///< asks for the weights of int8 activations long before they are multiplied
};

/// Which sums of a block's quantised inputs the weights need.
struct CodeSums {
  int offset;      ///< of the weights' codes
  bool in_halves;  ///< of 16 inputs each, since these share scales
  bool in_bytes;   ///< codes have eight bits
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_DOT_PRODUCTS
#define SPECDEC_SIMD_BODY "core/kernels/simd/block_product_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

template <class Block>
void run_task(const BlockTask<Block>& task, int64_t begin, int64_t end) {
  if constexpr (!Block::kIsFloat8 && !Block::kHasCodebook) {
    if (task.quantized != nullptr) {
      SPECDEC_SIMD_DOT_CALL(quantized_columns, task, begin, end);
      return;
    }
  }
  SPECDEC_SIMD_DOT_CALL(block_columns, task, begin, end);
}

const QuantizedBlock* quantize(const ProductRows<float>& rows, WeightFormat format) {
  const CodeSums sums = with_block_type(format, []<class Block>(Block* /*type*/) {
    return CodeSums{Block::kOffset, Block::kScaleInputs < kBlockInputs, Block::kCodeBits == 8};
  });
  thread_local std::vector<QuantizedBlock> blocks;
  const auto wanted = static_cast<size_t>(rows.nodes * blocks_of(rows.in));
  if (blocks.size() < wanted) {
    blocks.resize(wanted);
  }
  SPECDEC_SIMD_DOT_CALL(quantize_rows, rows.input, rows.nodes, rows.in, sums, blocks.data());
  return blocks.data();
}

}  // namespace

BlockProduct::BlockProduct(const ProductRows<float>& rows, const at::Tensor& panels,
                           WeightFormat format, ActivationFormat activations)
    : rows_(rows),
      format_(format),
      panels_(panels),
      quantized_(activations == ActivationFormat::kInt8 ? quantize(rows, format) : nullptr) {}

void BlockProduct::run(int64_t begin, int64_t end) const {
  with_block_type(format_, [&]<class Block>(Block* /*type*/) {
    const BlockTask<Block> task{
        {rows_.input, rows_.out, rows_.nodes, rows_.in, rows_.out_size, rows_.out_stride},
        quantized_,
        static_cast<const Block*>(panels_.const_data_ptr()),
        codebook_numbers(format_),
        (rows_.in + Block::kInputs - 1) / Block::kInputs,
        rows_.nodes >= read_ahead_choice().block_rows};
    run_task(task, begin, end);
  });
}

}  // namespace specdec
