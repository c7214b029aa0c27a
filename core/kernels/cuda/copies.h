#pragma once
#include <cstdint>

/// Copies beside what kernels compute, as a C interface like that of graphs (graphs.h, which waits
/// for streams and names errors): streams that do not wait for the default one (nullptr), events on
/// them, and copies that nobody waits for unasked. The result is a cudaError_t, 0 = none.
namespace specdec::cuda {

extern "C" {
int specdec_cuda_create_stream(void** stream);
/// What was queued on it is still done.
int specdec_cuda_destroy_stream(void* stream);
int specdec_cuda_create_event(void** event);
int specdec_cuda_destroy_event(void* event);
/// The event comes when all that was queued on the stream so far is done.
int specdec_cuda_record_event(void* event, void* stream);
/// What is queued on the stream later begins when the event has come as it was last recorded.
int specdec_cuda_wait_for_event(void* stream, void* event);
/// Returns when the event has come.
int specdec_cuda_synchronize_event(void* event);
/// Queues a copy between pinned memory of the host and a device's.
int specdec_cuda_copy(void* to, const void* from, int64_t bytes, void* stream);
}

}  // namespace specdec::cuda
