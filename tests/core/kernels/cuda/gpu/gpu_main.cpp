// The tests of the CUDA kernels on a GPU: the objects of specdec_device_test, linked to the kernels
// that nvcc compiled. All memory of the tests is pinned, so kernels get it as it is.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/kernels/cuda/kernels.h"
#include "tests/core/kernels/cuda/gpu/pinned_memory.h"
#include "tests/core/kernels/cuda/machine.h"

namespace specdec::cuda {

bool runs_on_a_gpu() { return true; }

namespace {

constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE

/// Whether a kernel's entry is that of the shared library, not of the emulation.
bool links_the_library() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&specdec_cuda_linear), &info) != 0 &&
         std::string(info.dli_fname).find("libspecdec_cuda_kernels") != std::string::npos;
}

}  // namespace
}  // namespace specdec::cuda

// `specdec_gpu_test rehearse` runs what calls no kernel, without a GPU.
int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const bool rehearse = argc > 1 && std::string(argv[1]) == "rehearse";
  if (testing::GTEST_FLAG(filter) == "*") {  // without "Cuda": tests of the emulation and the host
    testing::GTEST_FLAG(filter) = rehearse ? "-*Cuda*:*Death*" : "*Cuda*";
  }
  if (!specdec::cuda::links_the_library()) {
    std::fprintf(stderr, "specdec_gpu_test: linked to the emulated kernels\n");
    return 1;
  }
  if (rehearse) {
    specdec::cuda::rehearse_pinned_memory();
  } else if (!testing::GTEST_FLAG(list_tests)) {
    const std::string reason = specdec::cuda::use_pinned_memory();
    if (!reason.empty()) {
      std::printf("skipped: no GPU: %s\n", reason.c_str());
      return specdec::cuda::kSkipped;
    }
    std::printf("GPU: %s\n", specdec::cuda::device_name().c_str());
  }
  const int result = RUN_ALL_TESTS();
  // Objects of gtest's lie in pinned memory, which the driver may have unmapped before they end.
  std::fflush(nullptr);
  std::_Exit(result);
}
