// Runs Metal kernels on PyTorch's command buffer, so that they are in order with its own work.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <fmt/format.h>
#include <torch/mps.h>

#include <string>
#include <unordered_map>

#include "core/error.h"
#include "core/kernels/metal/metal_ops.h"
#include "core/kernels/metal/metal_sources.h"
#include "core/kernels/metal/sizes.h"

namespace specdec {
namespace {

using mps::KernelArray;
using mps::KernelLaunch;

/// Launches between two submissions: the GPU begins before the forward is encoded whole.
constexpr int kLaunchesOfASubmission = 64;

std::string text_of(NSError* error) {
  return error == nil ? "no reason given" : std::string([[error localizedDescription] UTF8String]);
}

class MetalQueue final : public mps::KernelQueue {
 public:
  void run(const KernelLaunch& launch) override {
    @autoreleasepool {
      const id<MTLCommandBuffer> buffer = torch::mps::get_command_buffer();
      const id<MTLComputePipelineState> pipeline = pipeline_of(launch, [buffer device]);
      const KernelLaunch* one = &launch;
      const bool submits = ++launches_ % kLaunchesOfASubmission == 0;
      dispatch_sync(torch::mps::get_dispatch_queue(), ^{
        encode(*one, buffer, pipeline);
        if (submits) {
          torch::mps::commit();
        }
      });
    }
  }

 private:
  static void encode(const KernelLaunch& launch, id<MTLCommandBuffer> buffer,
                     id<MTLComputePipelineState> pipeline) {
    const id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    [encoder setComputePipelineState:pipeline];
    NSUInteger index = 0;
    for (const KernelArray& array : launch.arrays) {
      // One that the kernel does not read is some array: Metal's checks want one.
      bind(array.tensor.defined() ? array : launch.arrays.front(), index++, encoder);
    }
    [encoder setBytes:launch.sizes length:launch.sizes_bytes atIndex:index];
    if (launch.group_bytes > 0) {  // a multiple of 16
      [encoder setThreadgroupMemoryLength:(launch.group_bytes + 15U) / 16U * 16U atIndex:0];
    }
    [encoder dispatchThreadgroups:MTLSizeMake(launch.groups[0], launch.groups[1], launch.groups[2])
            threadsPerThreadgroup:MTLSizeMake(launch.threads, 1, 1)];
    [encoder endEncoding];
  }

  /// A tensor's storage on the device mps is a buffer.
  static void bind(const KernelArray& array, NSUInteger index,
                   id<MTLComputeCommandEncoder> encoder) {
    void* storage = const_cast<void*>(array.tensor.storage().data());
    const int64_t first = array.tensor.storage_offset() + array.first;
    [encoder setBuffer:(__bridge id<MTLBuffer>)storage
                offset:static_cast<NSUInteger>(first) * array.tensor.itemsize()
               atIndex:index];
  }

  id<MTLComputePipelineState> pipeline_of(const KernelLaunch& launch, id<MTLDevice> device) {
    id<MTLComputePipelineState> __strong& pipeline =
        pipelines_[launch.source + "/" + launch.kernel];
    if (pipeline == nil) {
      pipeline = make_pipeline(launch, library_of(launch.source, device), device);
    }
    if ([pipeline maxTotalThreadsPerThreadgroup] < launch.threads ||
        [device maxThreadgroupMemoryLength] < launch.group_bytes) {
      throw Error(fmt::format(
          "Metal: kernel {} needs groups of {} threads with {} bytes, and this GPU has {} with {}; "
          "use device: cpu",
          launch.kernel, launch.threads, launch.group_bytes,
          static_cast<uint64_t>([pipeline maxTotalThreadsPerThreadgroup]),
          static_cast<uint64_t>([device maxThreadgroupMemoryLength])));
    }
    return pipeline;
  }

  static id<MTLComputePipelineState> make_pipeline(const KernelLaunch& launch,
                                                   id<MTLLibrary> library, id<MTLDevice> device) {
    const id<MTLFunction> function =
        [library newFunctionWithName:[NSString stringWithUTF8String:launch.kernel.c_str()]];
    SPECDEC_CHECK(function != nil, "Metal: no kernel {} in {}.metal", launch.kernel, launch.source);
    NSError* error = nil;
    const id<MTLComputePipelineState> pipeline =
        [device newComputePipelineStateWithFunction:function error:&error];
    if (pipeline == nil) {
      throw Error(fmt::format("Metal: kernel {} of {}.metal cannot be used on this GPU: {}",
                              launch.kernel, launch.source, text_of(error)));
    }
    if ([pipeline threadExecutionWidth] != mps::kSimdThreads) {
      throw Error(fmt::format(
          "Metal: kernels are for GPUs whose SIMD groups have {} threads, and those of this one "
          "have {}; use device: cpu",
          static_cast<int>(mps::kSimdThreads),
          static_cast<uint64_t>([pipeline threadExecutionWidth])));
    }
    return pipeline;
  }

  /// Each source is compiled when a kernel of it is first used, so that one that the machine's
  /// compiler refuses stops only what needs it.
  id<MTLLibrary> library_of(const std::string& source, id<MTLDevice> device) {
    id<MTLLibrary> __strong& library = libraries_[source];
    if (library == nil) {
      MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
      [options setLanguageVersion:MTLLanguageVersion3_0];
      [options setFastMathEnabled:NO];
      NSError* error = nil;
      library = [device newLibraryWithSource:[NSString stringWithUTF8String:source_text(source)]
                                     options:options
                                       error:&error];
      if (library == nil) {
        throw Error(fmt::format("Metal: core/kernels/metal/{}.metal does not compile here: {}",
                                source, text_of(error)));
      }
    }
    return library;
  }

  static const char* source_text(const std::string& name) {
    for (const mps::MetalSource& source : mps::metal_sources()) {
      if (name == source.name) {
        return source.text;
      }
    }
    SPECDEC_CHECK(false, "Metal: no source {}", name);
  }

  std::unordered_map<std::string, id<MTLLibrary>> libraries_;
  std::unordered_map<std::string, id<MTLComputePipelineState>> pipelines_;
  int launches_ = 0;
};

}  // namespace

std::shared_ptr<Ops> mps_ops(at::Device device) {
  return metal_ops(device, std::make_unique<MetalQueue>());
}

}  // namespace specdec
