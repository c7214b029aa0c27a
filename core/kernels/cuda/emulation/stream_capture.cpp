#include "core/kernels/cuda/emulation/stream_capture.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/emulation/stream_copies.h"
#include "core/kernels/cuda/launch_shape.h"

namespace specdec::cuda {
namespace {

using Grids = std::vector<std::function<void()>>;

/// A stream that is captured.
struct Capture {
  Grids grids;
  bool valid = true;
};

thread_local std::unique_ptr<Capture> capture;

int invalidate() {
  capture->valid = false;
  return kCaptureUnsupported;
}

}  // namespace

int begin_capture(void** stream) {
  if (capture != nullptr) {
    return invalidate();
  }
  capture = std::make_unique<Capture>();
  *stream = capture.get();
  return 0;
}

int end_capture(void* stream, void** graph) {
  if (graph != nullptr) {
    *graph = nullptr;
  }
  if (capture == nullptr || stream != capture.get()) {
    return kInvalidValue;
  }
  const std::unique_ptr<Capture> ended = std::move(capture);
  if (!ended->valid) {
    return kCaptureInvalidated;
  }
  if (graph != nullptr) {
    *graph = std::make_unique<Grids>(std::move(ended->grids)).release();
  }
  return 0;
}

int launch_graph(void* graph, void* /*stream*/) {
  if (capture != nullptr) {
    return invalidate();
  }
  const emulation::Overlap overlap;
  for (const auto& grid : *static_cast<Grids*>(graph)) {
    grid();
  }
  return 0;
}

int destroy_graph(void* graph) {
  const std::unique_ptr<Grids> destroyed(static_cast<Grids*>(graph));
  return 0;
}

int synchronize(void* stream) {
  return capture == nullptr ? emulation::finish_stream(stream) : invalidate();
}

const char* error_name(int error) {
  switch (error) {
    case 0:
      return "cudaSuccess";
    case kInvalidValue:
      return "cudaErrorInvalidValue";
    case kCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case kCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case kCopyOvertakesLaunch:
      return "a copy that overtakes a launch, whose end it has to wait for";
    default:
      return "unrecognized error code";
  }
}

namespace emulation {

int launch_grid(void* stream, std::function<void()> grid) {
  if (capture == nullptr) {
    grid();
    return 0;
  }
  if (stream != capture.get()) {
    return invalidate();
  }
  capture->grids.push_back(std::move(grid));
  return 0;
}

bool is_capturing() { return capture != nullptr; }

}  // namespace emulation
}  // namespace specdec::cuda
