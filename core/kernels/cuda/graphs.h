#pragma once

/// CUDA graphs, as a C interface beside that of the kernels (kernels.h): what a thread launches is
/// recorded once and launched again as a whole, with the same arguments. The result is a
/// cudaError_t, 0 = none. After an error nothing is left to destroy.
namespace specdec::cuda {

extern "C" {
/// Begins to record: sets `*stream` to a new stream, on which this thread's launches are noted and
/// not run. Until the end this thread may launch on no other stream, and may neither allocate
/// device memory nor wait for the device.
int specdec_cuda_begin_capture(void** stream);
/// Ends what began on `stream`, which is no stream any more. Sets `*graph` to what was launched
/// there; with nullptr it is dropped.
int specdec_cuda_end_capture(void* stream, void** graph);
/// Launches everything that was recorded, in order on `stream`. The memory that it reads and writes
/// has to be there still; what kernels need at their first launch (their code) is loaded before it
/// is recorded, by a launch.
int specdec_cuda_launch_graph(void* graph, void* stream);
int specdec_cuda_destroy_graph(void* graph);
/// Waits for all work on a stream.
int specdec_cuda_synchronize(void* stream);
/// CUDA's name of an error, such as "cudaErrorMemoryAllocation".
const char* specdec_cuda_error_name(int error);
}

}  // namespace specdec::cuda
