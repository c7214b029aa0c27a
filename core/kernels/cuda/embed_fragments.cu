// Rows of a matrix that is arranged for tensor cores; see fragment_formats.cuh.
#include "core/kernels/cuda/fragment_weight.cuh"
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {
namespace {

/// A block reads one row.
template <class Format>
__global__ void __launch_bounds__(kTensorThreads)
    embed_fragments_kernel(FormatTask<EmbedRowsTask, Format> kernel_task) {
  await_earlier_kernels();
  const EmbedRowsTask& task = kernel_task.task;
  const auto index = static_cast<int64_t>(blockIdx.x);
  const FragmentMatrix matrix = {task.weight, task.outputs, task.in};
  const int32_t output = task.ids[index];
  for (int k = static_cast<int>(threadIdx.x); k < task.in; k += kTensorThreads) {
    task.out[index * task.in + k] =
        fragment_weight(matrix, kernel_task.format, output, k) * task.factor;
  }
}

}  // namespace

int64_t specdec_cuda_fragment_bytes(int32_t outputs, int32_t in, CudaWeights format) {
  return with_fragments(format, int64_t{0}, [&](auto fragments) {
    using Format = decltype(fragments);
    return static_cast<int64_t>(weight_tiles(outputs)) * chunks_of(in) *
           (kChunkBytes<Format> + kChunkScaleWords<Format> * 4);
  });
}

int specdec_cuda_embed_fragments(const EmbedRowsTask* task, void* stream) {
  if (task->count == 0) {
    return 0;
  }
  return with_fragments(task->format, kInvalidValue, [&](auto fragments) {
    LaunchShape shape;
    shape.grid_x = static_cast<unsigned>(task->count);
    shape.threads = kTensorThreads;
    using Format = decltype(fragments);
    return launch(embed_fragments_kernel<Format>, shape, stream,
                  FormatTask<EmbedRowsTask, Format>{*task, fragments});
  });
}

}  // namespace specdec::cuda
