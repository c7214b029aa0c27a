#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace specdec::python {

/// The memory of a torch tensor, numpy array, or anything else with a buffer or DLPack, without a
/// copy. Holds the object; nobody may resize it meanwhile.
class __attribute__((visibility("hidden"))) Tensor {
 public:
  enum class Kind { kInt = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4 };  // as DLPack numbers them

  /// `name` stands in front of errors. Throws Error unless the memory is the CPU's, writable, and
  /// the rows lie one after the other.
  Tensor(nanobind::handle object, const char* name);
  ~Tensor();
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  void* data() const { return data_; }
  Kind kind() const { return kind_; }
  int64_t bits() const { return bits_; }
  int64_t rows() const { return rows_; }  ///< 1 for a vector
  int64_t columns() const { return columns_; }
  /// [2, 64]
  std::string shape() const;

  /// The words of a bitmask. Throws Error unless they are int32 and a row has `columns`.
  std::span<int32_t> bitmask(int64_t columns, int64_t vocab_size) const;

 private:
  struct Layout;

  bool read_exchange(nanobind::handle object);
  bool read_buffer(nanobind::handle object);
  void read_dlpack(nanobind::handle object);
  void set(const Layout& layout);

  const char* name_;
  void* data_ = nullptr;
  Kind kind_ = Kind::kInt;
  int64_t bits_ = 0;
  int64_t rows_ = 1;
  int64_t columns_ = 0;
  int64_t dimensions_ = 0;
  Py_buffer buffer_ = {};
  nanobind::object capsule_;
};

}  // namespace specdec::python
