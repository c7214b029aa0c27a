// Rows of a matrix that is arranged for tensor cores; see fragment_formats.cuh.
#include "core/kernels/cuda/fragment_weight.cuh"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/unpack_kernel.h"

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

/// A block unpacks one output.
template <class Format>
__global__ void __launch_bounds__(kTensorThreads)
    unpack_kernel(FormatTask<UnpackFragmentsTask, Format> kernel_task) {
  await_earlier_kernels();
  const UnpackFragmentsTask& task = kernel_task.task;
  const FragmentMatrix matrix = {task.fragments, task.outputs, task.in};
  const auto output = static_cast<int32_t>(blockIdx.x);
  uint16_t* row = task.out + static_cast<int64_t>(output) * task.in;
  for (int k = static_cast<int>(threadIdx.x); k < task.in; k += kTensorThreads) {
    const float weight = fragment_weight(matrix, kernel_task.format, output, k);
    row[k] = static_cast<uint16_t>(device::narrow(weight, device::Bfloat16Bits{}).bits);
  }
}

/// Runs one of these, which `use` names for a format, in so many blocks.
template <class Task, class Use>
int launch_rows(const Task& task, int32_t blocks, void* stream, Use use) {
  if (blocks == 0) {
    return 0;
  }
  return with_fragments(task.format, kInvalidValue, [&](auto fragments) {
    LaunchShape shape;
    shape.grid_x = static_cast<unsigned>(blocks);
    shape.threads = kTensorThreads;
    using Format = decltype(fragments);
    return launch(use(fragments), shape, stream, FormatTask<Task, Format>{task, fragments});
  });
}

}  // namespace

int64_t specdec_cuda_fragment_bytes(int32_t outputs, int32_t in, WeightFormat format) {
  return with_fragments(format, int64_t{0}, [&](auto fragments) {
    using Format = decltype(fragments);
    return static_cast<int64_t>(weight_tiles(outputs)) * chunks_of(in) *
           (kChunkBytes<Format> + kChunkScaleWords<Format> * 4);
  });
}

int specdec_cuda_embed_fragments(const EmbedRowsTask* task, void* stream) {
  return launch_rows(*task, task->count, stream,
                     [](auto format) { return embed_fragments_kernel<decltype(format)>; });
}

int specdec_cuda_unpack_fragments(const UnpackFragmentsTask* task, void* stream) {
  return launch_rows(*task, task->outputs, stream,
                     [](auto format) { return unpack_kernel<decltype(format)>; });
}

}  // namespace specdec::cuda
