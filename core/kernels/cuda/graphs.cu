// Graphs of launches: what each build's stream_capture.h says, with C linkage.
#include <stream_capture.h>

#include "core/kernels/cuda/graphs.h"

namespace specdec::cuda {

int specdec_cuda_begin_capture(void** stream) { return begin_capture(stream); }
int specdec_cuda_end_capture(void* stream, void** graph) { return end_capture(stream, graph); }
int specdec_cuda_launch_graph(void* graph, void* stream) { return launch_graph(graph, stream); }
int specdec_cuda_destroy_graph(void* graph) { return destroy_graph(graph); }
int specdec_cuda_synchronize(void* stream) { return synchronize(stream); }
const char* specdec_cuda_error_name(int error) { return error_name(error); }

}  // namespace specdec::cuda
