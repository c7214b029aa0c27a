// Graphs of launches by their C interface: in the emulation, and on a GPU where there is one.
#include "core/kernels/cuda/graphs.h"

#include <gmock/gmock.h>

#include <vector>

#include "core/kernels/cuda/emulation/stream_capture.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"

namespace specdec::cuda {
namespace {

using testing::ElementsAre;

/// Adds `input` to `out`.
int add_numbers(const std::vector<float>& input, std::vector<float>& out, void* stream) {
  const ElementwiseTask task = {ElementwiseTask::Kind::kAdd, input.data(), out.data(),
                                static_cast<int64_t>(out.size()), 0.0F};
  return specdec_cuda_elementwise(&task, stream);
}

/// Multiplies all numbers by a factor.
int multiply_numbers(std::vector<float>& numbers, float factor, void* stream) {
  CopyRowsTask task{};
  task.input = numbers.data();
  task.out = numbers.data();
  task.columns = static_cast<int32_t>(numbers.size());
  task.out_stride = task.columns;
  task.rows = 1;
  task.factor = factor;
  return specdec_cuda_copy_rows(&task, stream);
}

class CudaGraphsTest : public testing::Test {
 protected:
  void SetUp() override {  // a first launch of each kernel: it cannot be captured
    std::vector<float> numbers = {0};
    ASSERT_EQ(add_numbers(numbers, numbers, nullptr), 0);
    ASSERT_EQ(multiply_numbers(numbers, 1.0F, nullptr), 0);
    ASSERT_EQ(specdec_cuda_synchronize(nullptr), 0);
  }

  void run(void* graph) {
    ASSERT_EQ(specdec_cuda_launch_graph(graph, nullptr), 0);
    ASSERT_EQ(specdec_cuda_synchronize(nullptr), 0);
  }

  std::vector<float> input_ = {1, 2};
  std::vector<float> out_ = {10, 20};
  void* stream_ = nullptr;
};

TEST_F(CudaGraphsTest, RunsInOrderOnWhatTheMemoryHolds) {
  ASSERT_EQ(specdec_cuda_begin_capture(&stream_), 0);
  ASSERT_NE(stream_, nullptr);
  EXPECT_EQ(add_numbers(input_, out_, stream_), 0);
  float factor = 3.0F;
  EXPECT_EQ(multiply_numbers(out_, factor, stream_), 0);
  factor = 0.0F;  // arguments are kept by value
  void* graph = nullptr;
  ASSERT_EQ(specdec_cuda_end_capture(stream_, &graph), 0);
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(out_, ElementsAre(10, 20)) << "nothing has run";
  run(graph);
  EXPECT_THAT(out_, ElementsAre(33, 66));
  input_ = {7, 4};  // in the same memory
  run(graph);
  EXPECT_THAT(out_, ElementsAre(120, 210));
  EXPECT_EQ(specdec_cuda_destroy_graph(graph), 0);
}

TEST_F(CudaGraphsTest, WhatIsDroppedNeverRuns) {
  ASSERT_EQ(specdec_cuda_begin_capture(&stream_), 0);
  EXPECT_EQ(add_numbers(input_, out_, stream_), 0);
  EXPECT_EQ(specdec_cuda_end_capture(stream_, nullptr), 0);
  ASSERT_EQ(specdec_cuda_synchronize(nullptr), 0);
  EXPECT_THAT(out_, ElementsAre(10, 20));
  EXPECT_EQ(add_numbers(input_, out_, nullptr), 0);
  ASSERT_EQ(specdec_cuda_synchronize(nullptr), 0);
  EXPECT_THAT(out_, ElementsAre(11, 22));
}

TEST_F(CudaGraphsTest, GraphsAreIndependent) {
  void* graphs[2] = {nullptr, nullptr};
  for (const int i : {0, 1}) {
    ASSERT_EQ(specdec_cuda_begin_capture(&stream_), 0);
    EXPECT_EQ(multiply_numbers(out_, i == 0 ? 2.0F : 5.0F, stream_), 0);
    ASSERT_EQ(specdec_cuda_end_capture(stream_, &graphs[i]), 0);
  }
  EXPECT_EQ(specdec_cuda_destroy_graph(graphs[0]), 0);
  run(graphs[1]);
  EXPECT_THAT(out_, ElementsAre(50, 100));
  EXPECT_EQ(specdec_cuda_destroy_graph(graphs[1]), 0);
}

TEST_F(CudaGraphsTest, WaitingForTheDeviceEndsACapture) {
  ASSERT_EQ(specdec_cuda_begin_capture(&stream_), 0);
  EXPECT_EQ(add_numbers(input_, out_, stream_), 0);
  EXPECT_NE(specdec_cuda_synchronize(stream_), 0);
  void* graph = &stream_;
  const int error = specdec_cuda_end_capture(stream_, &graph);
  EXPECT_STREQ(specdec_cuda_error_name(error), "cudaErrorStreamCaptureInvalidated");
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(add_numbers(input_, out_, nullptr), 0) << "the error is not left for the next launch";
  ASSERT_EQ(specdec_cuda_synchronize(nullptr), 0);
  EXPECT_THAT(out_, ElementsAre(11, 22));
}

TEST(CudaGraphErrorsTest, HaveCudasNames) {
  EXPECT_STREQ(specdec_cuda_error_name(0), "cudaSuccess");
  EXPECT_STREQ(specdec_cuda_error_name(kInvalidValue), "cudaErrorInvalidValue");
  EXPECT_STREQ(specdec_cuda_error_name(kCaptureUnsupported), "cudaErrorStreamCaptureUnsupported");
}

// Beside what CUDA forbids, the emulation refuses what would be lost from a graph of ours.
TEST(StreamCaptureTest, ALaunchOnAnotherStreamEndsACapture) {
  bool ran = false;
  const auto launch_elsewhere = [&ran](void* graph) {
    return graph != nullptr ? launch_graph(graph, nullptr)
                            : emulation::launch_grid(nullptr, [&ran] { ran = true; });
  };
  void* stream = nullptr;
  void* graph = nullptr;
  ASSERT_EQ(begin_capture(&stream), 0);
  EXPECT_EQ(emulation::launch_grid(stream, [&ran] { ran = true; }), 0);
  ASSERT_EQ(end_capture(stream, &graph), 0);
  for (void* other : {static_cast<void*>(nullptr), graph}) {
    ASSERT_EQ(begin_capture(&stream), 0);
    EXPECT_EQ(launch_elsewhere(other), kCaptureUnsupported);
    void* none = &stream;
    EXPECT_EQ(end_capture(stream, &none), kCaptureInvalidated);
    EXPECT_EQ(none, nullptr);
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(launch_elsewhere(graph), 0);
  EXPECT_TRUE(ran);
  EXPECT_EQ(destroy_graph(graph), 0);
}

TEST(StreamCaptureTest, CapturesDoNotNest) {
  void* outer = nullptr;
  void* inner = nullptr;
  ASSERT_EQ(begin_capture(&outer), 0);
  EXPECT_EQ(begin_capture(&inner), kCaptureUnsupported);
  EXPECT_EQ(inner, nullptr);
  EXPECT_EQ(end_capture(&inner, nullptr), kInvalidValue) << "no stream that is captured";
  EXPECT_TRUE(emulation::is_capturing());
  EXPECT_EQ(end_capture(outer, nullptr), kCaptureInvalidated);
  EXPECT_FALSE(emulation::is_capturing());
}

}  // namespace
}  // namespace specdec::cuda
