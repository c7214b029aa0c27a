#include "tests/support/watched_device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

namespace specdec {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
/// Added to an address, it makes one that no process has.
constexpr uintptr_t kElsewhere = uintptr_t{1} << 62U;

std::atomic<int64_t> reads = 0;
thread_local bool is_computing = false;  // in a kernel, which reads by copies

/// Allocator of memory that others may not read.
class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = c10::alloc_cpu(bytes);
    auto* address = static_cast<char*>(memory) + (memory == nullptr ? 0 : kElsewhere);
    return {address, memory, &c10::free_cpu, watched_device()};
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(static_cast<char*>(to) - kElsewhere,
                      static_cast<const char*>(from) - kElsewhere, count);
  }
};

Allocator allocator;

/// The numbers of a tensor as the CPU sees them.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().type() != kType) {
    return tensor;
  }
  const auto options = at::TensorOptions(tensor.scalar_type()).device(at::kCPU);
  if (tensor.numel() == 0) {
    return at::empty(tensor.sizes(), options);
  }
  return at::from_blob(static_cast<char*>(tensor.data_ptr()) - kElsewhere, tensor.sizes(),
                       tensor.strides(), options);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> /*device*/, std::optional<bool> /*pin*/) {
  return at::detail::empty_strided_generic(size, stride, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::kFloat));
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*non_blocking*/) {
  if (to.is_cpu() && !is_computing) {
    ++reads;
  }
  on_host(to).copy_(on_host(from));
  return to;
}

/// Numbers are not kept: those that resize write all.
const at::Tensor& resize_empty(const at::Tensor& self, at::IntArrayRef size,
                               std::optional<at::MemoryFormat> /*format*/) {
  if (self.sizes() != size) {
    const at::Tensor wanted = at::empty(size, self.options());
    self.unsafeGetTensorImpl()->set_storage_keep_dtype(wanted.storage());
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, c10::SymInt offset,
                        c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, resize_empty(to, from.sizes(), std::nullopt), false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  ++reads;
  return at::_local_scalar_dense(on_host(self));
}

/// Throws where an op is given tensors of both devices.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto check = [&op](const at::Tensor& tensor) {
    TORCH_CHECK(!tensor.defined() || tensor.device().type() == kType || tensor.dim() == 0,
                op.schema().name(), ": a tensor on ", tensor.device(),
                " beside those of the watched device");
  };
  for (const c10::IValue& argument : torch::jit::last(stack, op.schema().arguments().size())) {
    if (argument.isTensor()) {
      check(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        check(tensor);
      }
    } else if (argument.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : argument.toOptionalTensorVector()) {
        check(tensor.value_or(at::Tensor()));
      }
    }
  }
}

/// Computes on the CPU.
void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const std::set<std::string> kSized = {"aten::nonzero", "aten::masked_select",
                                               "aten::_unique2", "aten::equal"};
  check_devices(op, *stack);
  if (kSized.count(op.schema().name()) > 0) {
    ++reads;
  }
  is_computing = true;
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  is_computing = false;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("resize_", &resize_empty);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

/// Autograd then takes it for the accelerator of the process, with one stream.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

bool register_device() {
  static Hooks hooks;
  c10::register_privateuse1_backend("watched");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}

/// One device with one stream, on which nothing is waited for.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kType, 0}; }
  c10::Stream getStream(c10::Device /*device*/) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, {kType, 0});
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

at::Device watched_device() {
  static const bool is_registered = register_device();
  return {is_registered ? kType : c10::DeviceType::CPU, 0};
}

int64_t host_reads() { return reads; }

}  // namespace specdec
