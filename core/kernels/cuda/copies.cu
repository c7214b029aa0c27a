// Copies beside kernels: what each build's stream_copies.h says, with C linkage.
#include <stream_copies.h>

#include "core/kernels/cuda/copies.h"

namespace specdec::cuda {

int specdec_cuda_create_stream(void** stream) { return create_stream(stream); }
int specdec_cuda_destroy_stream(void* stream) { return destroy_stream(stream); }
int specdec_cuda_create_event(void** event) { return create_event(event); }
int specdec_cuda_destroy_event(void* event) { return destroy_event(event); }
int specdec_cuda_record_event(void* event, void* stream) { return record_event(event, stream); }
int specdec_cuda_wait_for_event(void* stream, void* event) { return wait_for_event(stream, event); }
int specdec_cuda_synchronize_event(void* event) { return synchronize_event(event); }
int specdec_cuda_copy(void* to, const void* from, int64_t bytes, void* stream) {
  return queue_copy(to, from, bytes, stream);
}

}  // namespace specdec::cuda
