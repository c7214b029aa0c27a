#include "tensor.h"

#include <fmt/format.h>

#include <string_view>

#include "core/error.h"

namespace nb = nanobind;

namespace specdec::python {
namespace {

// DLPack 1.3 (github.com/dmlc/dlpack), as far as it is read here.
struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlExchangeApi {
  uint32_t major, minor;
  void* previous;
  void* allocate;
  void* managed_from_object;
  void* object_from_managed;
  int (*tensor_from_object)(void* object, DlTensor* out);
  void* current_stream;
};
constexpr int32_t kCpu = 1;
constexpr int32_t kPinned = 3;  // the CPU's memory too

/// What the type of an object offers for quick access; nullptr: nothing.
const DlExchangeApi* exchange_api(PyTypeObject* type) {
  static PyTypeObject* known = nullptr;  // the type seen last; both are read under the GIL
  static const DlExchangeApi* api = nullptr;
  if (type == known) {
    return api;
  }
  const nb::object capsule = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)),
                                         "__dlpack_c_exchange_api__", nb::none());
  const void* found = PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") != 0
                          ? PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api")
                          : nullptr;
  Py_INCREF(type);  // for ever: another type never gets its address
  known = type;
  api = static_cast<const DlExchangeApi*>(found);
  api = api != nullptr && api->major == 1 ? api : nullptr;
  return api;
}

/// Kind and bits of a buffer's format, such as "f"; bits = 0 for others.
std::pair<Tensor::Kind, int64_t> kind_of(const Py_buffer& buffer) {
  std::string_view format = buffer.format == nullptr ? "B" : buffer.format;
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) {
    format.remove_prefix(1);
  }
  const int64_t bits = format.size() == 1 ? 8 * buffer.itemsize : 0;
  const char c = format.empty() ? '?' : format[0];
  if (std::string_view("bhilqn").find(c) != std::string_view::npos) {
    return {Tensor::Kind::kInt, bits};
  }
  if (std::string_view("efd").find(c) != std::string_view::npos) {
    return {Tensor::Kind::kFloat, bits};
  }
  return {Tensor::Kind::kUnsigned, bits};
}

std::string type_name(Tensor::Kind kind, int64_t bits) {
  switch (kind) {
    case Tensor::Kind::kInt:
      return fmt::format("int{}", bits);
    case Tensor::Kind::kUnsigned:
      return fmt::format("uint{}", bits);
    case Tensor::Kind::kFloat:
      return fmt::format("float{}", bits);
    case Tensor::Kind::kBfloat:
      return fmt::format("bfloat{}", bits);
  }
  return "another type";
}

}  // namespace

/// Strides in items; nullptr: row after row.
struct Tensor::Layout {
  void* data;
  std::pair<Kind, int64_t> kind;
  int64_t dimensions;
  const int64_t* shape;
  const int64_t* strides;
};

Tensor::Tensor(nb::handle object, const char* name) : name_(name) {
  if (!read_exchange(object) && !read_buffer(object)) {
    read_dlpack(object);
  }
}

Tensor::~Tensor() {
  if (buffer_.obj != nullptr) {
    PyBuffer_Release(&buffer_);
  }
}

bool Tensor::read_exchange(nb::handle object) {
  const DlExchangeApi* api = exchange_api(Py_TYPE(object.ptr()));
  if (api == nullptr) {
    return false;
  }
  DlTensor found = {};
  if (api->tensor_from_object(object.ptr(), &found) != 0) {
    throw nb::python_error();
  }
  if (found.device_type != kCpu && found.device_type != kPinned) {
    throw Error(fmt::format("{} is not in the CPU's memory; copy it with .cpu()", name_));
  }
  set({static_cast<char*>(found.data) + found.byte_offset,
       {static_cast<Kind>(found.code), found.lanes == 1 ? found.bits : 0},
       found.ndim,
       found.shape,
       found.strides});
  return true;
}

bool Tensor::read_buffer(nb::handle object) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) {
    return false;
  }
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_STRIDES | PyBUF_WRITABLE) !=
      0) {
    PyErr_Clear();
    buffer_ = {};
    throw Error(fmt::format("{} cannot be written to; pass a writable array", name_));
  }
  int64_t shape[2] = {0, 0};
  int64_t strides[2] = {0, 0};
  for (int i = 0; i < buffer_.ndim && i < 2; ++i) {
    shape[i] = buffer_.shape[i];
    strides[i] = buffer_.itemsize == 0 ? 0 : buffer_.strides[i] / buffer_.itemsize;
  }
  set({buffer_.buf, kind_of(buffer_), buffer_.ndim, shape, strides});
  return true;
}

void Tensor::read_dlpack(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack__")) {
    throw Error(fmt::format("{} is of type {}; pass a torch tensor or a numpy array", name_,
                            nb::type_name(object.type()).c_str()));
  }
  const auto device = nb::cast<nb::tuple>(object.attr("__dlpack_device__")());
  const auto device_type = nb::cast<int64_t>(nb::int_(nb::object(device[0])));
  if (device_type != kCpu && device_type != kPinned) {
    throw Error(fmt::format("{} is not in the CPU's memory; copy it with .cpu()", name_));
  }
  capsule_ = object.attr("__dlpack__")();  // owns the memory until this goes
  const auto* found =
      static_cast<const DlTensor*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
  if (found == nullptr) {
    throw nb::python_error();
  }
  set({static_cast<char*>(found->data) + found->byte_offset,
       {static_cast<Kind>(found->code), found->lanes == 1 ? found->bits : 0},
       found->ndim,
       found->shape,
       found->strides});
}

void Tensor::set(const Layout& layout) {
  data_ = layout.data;
  kind_ = layout.kind.first;
  bits_ = layout.kind.second;
  dimensions_ = layout.dimensions;
  if (dimensions_ != 1 && dimensions_ != 2) {
    throw Error(fmt::format("{} has {} dimensions; it must have 1 or 2", name_, dimensions_));
  }
  rows_ = dimensions_ == 2 ? layout.shape[0] : 1;
  columns_ = layout.shape[dimensions_ - 1];
  const int64_t* strides = layout.strides;
  if (strides != nullptr && rows_ * columns_ > 0 &&
      ((columns_ > 1 && strides[dimensions_ - 1] != 1) || (rows_ > 1 && strides[0] != columns_))) {
    throw Error(
        fmt::format("the rows of {} do not lie one after the other; pass a contiguous one", name_));
  }
}

std::string Tensor::shape() const {
  return dimensions_ == 2 ? fmt::format("[{}, {}]", rows_, columns_)
                          : fmt::format("[{}]", columns_);
}

std::span<int32_t> Tensor::bitmask(int64_t columns, int64_t vocab_size) const {
  if (kind_ != Kind::kInt || bits_ != 32) {
    throw Error(fmt::format("{} holds {}; it must hold int32", name_, type_name(kind_, bits_)));
  }
  if (columns_ != columns) {
    throw Error(fmt::format("{} has shape {}; it must be [rows, {}] for {} tokens", name_, shape(),
                            columns, vocab_size));
  }
  return {static_cast<int32_t*>(data_), static_cast<size_t>(rows_ * columns_)};
}

}  // namespace specdec::python
