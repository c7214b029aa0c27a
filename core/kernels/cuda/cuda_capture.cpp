#include "core/kernels/cuda/cuda_capture.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/kernels/cuda/graphs.h"

namespace specdec::cuda {
namespace {

void check(int error, const char* what) {
  if (error != 0) {
    throw Error(fmt::format("CUDA: {} failed with {} ({}); 'cuda_graphs: 0' decodes without graphs",
                            what, specdec_cuda_error_name(error), error));
  }
}

class CudaGraph final : public OpsGraph {
 public:
  CudaGraph(void* graph, at::Device device, std::vector<at::Tensor> workspaces,
            std::shared_ptr<SplitRows> split)
      : graph_(graph),
        device_(device),
        workspaces_(std::move(workspaces)),
        split_(std::move(split)) {}
  ~CudaGraph() override {
    const c10::OptionalDeviceGuard guard(device_);
    specdec_cuda_destroy_graph(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void run() override {
    const c10::OptionalDeviceGuard guard(device_);
    *split_ = {};
    check(specdec_cuda_launch_graph(graph_, nullptr), "the launch of a graph");
    if (device_.is_cpu()) {  // whose memory is read by the host at once
      check(specdec_cuda_synchronize(nullptr), "a graph");
    }
  }

 private:
  void* graph_;
  at::Device device_;
  std::vector<at::Tensor> workspaces_;
  std::shared_ptr<SplitRows> split_;
};

}  // namespace

CudaCapture::CudaCapture(void*& stream, at::Device device, std::shared_ptr<SplitRows> split)
    : stream_(stream), device_(device), split_(std::move(split)) {
  *split_ = {};
  check(specdec_cuda_begin_capture(&stream_), "the beginning of a graph");
}

CudaCapture::~CudaCapture() {
  if (capturing_) {
    specdec_cuda_end_capture(stream_, nullptr);
  }
  stream_ = nullptr;
  *split_ = {};
}

std::unique_ptr<OpsGraph> CudaCapture::finish(std::vector<at::Tensor> workspaces) {
  void* graph = nullptr;
  capturing_ = false;
  check(specdec_cuda_end_capture(stream_, &graph), "the recording of a graph");
  return std::make_unique<CudaGraph>(graph, device_, std::move(workspaces), split_);
}

}  // namespace specdec::cuda
