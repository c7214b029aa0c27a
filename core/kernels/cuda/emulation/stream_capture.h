#pragma once
#include <functional>

/// Graphs of launches in the emulation: a stream that is captured notes grids, with their arguments
/// by value, and a graph runs them in order. See core/kernels/cuda/graphs.h for what each function
/// does. A thread captures one stream at a time.
namespace specdec::cuda {

/// Error of what ends a capture in CUDA too: a launch on another stream, or a wait.
constexpr int kCaptureUnsupported = 900;
/// Error of the end of a capture in which kCaptureUnsupported occurred.
constexpr int kCaptureInvalidated = 901;

int begin_capture(void** stream);
int end_capture(void* stream, void** graph);
int launch_graph(void* graph, void* stream);
int destroy_graph(void* graph);
int synchronize(void* stream);
const char* error_name(int error);

namespace emulation {

/// Runs a grid, or notes it where this thread captures `stream`. While it captures another one, the
/// capture is invalid and this is an error.
int launch_grid(void* stream, std::function<void()> grid);
/// Whether this thread captures a stream.
bool is_capturing();

}  // namespace emulation
}  // namespace specdec::cuda
