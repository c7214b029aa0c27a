#pragma once
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"

/// Metal kernels compiled as C++ (core/kernels/metal/language), which the emulation of CUDA runs.
namespace specdec::mps {

/// What a kernel gets: its parameters are pointers to arrays, then the sizes, then a pointer to the
/// group's memory where it has some, then the group, and the thread in it: its index, or its lane
/// and SIMD group.
struct EmulatedArguments {
  std::vector<void*> arrays;
  void* sizes = nullptr;
};

/// Runs a kernel as one thread.
using EmulatedKernel = std::function<void(const EmulatedArguments&)>;

/// Kernels that are linked, by source and name: "norm/rms_norm".
inline std::map<std::string, EmulatedKernel>& emulated_kernels() {
  static std::map<std::string, EmulatedKernel> kernels;
  return kernels;
}

/// Reads a kernel's parameters one after the other.
class ParameterReader {
 public:
  explicit ParameterReader(const EmulatedArguments& arguments) : arguments_(arguments) {}

  template <class T>
  T next() {
    if constexpr (std::is_pointer_v<T>) {
      void* pointer = array_ < arguments_.arrays.size() ? arguments_.arrays[array_++]
                                                        : cuda::emulation::shared_memory();
      return static_cast<T>(pointer);
    } else if constexpr (std::is_reference_v<T>) {
      return *static_cast<std::remove_reference_t<T>*>(arguments_.sizes);
    } else if constexpr (std::is_same_v<T, unsigned>) {
      constexpr unsigned kLanes = 32;
      const unsigned index = cuda::emulation::threadIdx.x;
      return index_++ == 1 ? index % kLanes : index / kLanes;
    } else {
      const cuda::emulation::Index& index =
          index_++ == 0 ? cuda::emulation::blockIdx : cuda::emulation::threadIdx;
      return T{index.x, index.y, index.z};
    }
  }

 private:
  const EmulatedArguments& arguments_;
  size_t array_ = 0;
  int index_ = 0;
};

template <class... Parameters>
EmulatedKernel emulated_kernel(void (*function)(Parameters...)) {
  return [function](const EmulatedArguments& arguments) {
    ParameterReader reader(arguments);
    const std::tuple<Parameters...> parameters{reader.next<Parameters>()...};  // in their order
    std::apply(function, parameters);
  };
}

/// Lists the kernels of a source.
struct EmulatedSource {
  EmulatedSource(const std::string& source,
                 std::initializer_list<std::pair<const char*, EmulatedKernel>> kernels) {
    for (const auto& [name, kernel] : kernels) {
      emulated_kernels()[source + "/" + name] = kernel;
    }
  }
};

}  // namespace specdec::mps
