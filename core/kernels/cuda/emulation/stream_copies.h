#pragma once
#include <cstddef>
#include <cstdint>

/// Copies beside kernels in the emulation; see core/kernels/cuda/copies.h for what each function
/// does. A copy is as late as it may be: it is done when something waits for it, the host or the
/// next launch after the default stream was told to. Until then its target holds bytes 0xFF, which
/// are NaNs of every format, so what nobody waited for shows in the results, as does a source that
/// was written to meanwhile. Launches run at once: what a copy may not overtake is known by the
/// addresses in their arguments.
namespace specdec::cuda {

/// Error of a copy from or to memory whose address a launch was given, since when the copy's stream
/// has not waited for the default one. (CUDA returns no error: it copies too early, now and then.)
constexpr int kCopyOvertakesLaunch = 9001;

int create_stream(void** stream);
int destroy_stream(void* stream);
int create_event(void** event);
int destroy_event(void* event);
int record_event(void* event, void* stream);
int wait_for_event(void* stream, void* event);
int synchronize_event(void* event);
int queue_copy(void* to, const void* from, int64_t bytes, void* stream);

namespace emulation {

/// Called before a grid runs on the default stream with `bytes` of arguments at `task`.
void begin_launch(const void* task, size_t bytes);
/// Does all that was queued on a stream; of nullptr what the default stream waits for.
int finish_stream(void* stream);

}  // namespace emulation
}  // namespace specdec::cuda
