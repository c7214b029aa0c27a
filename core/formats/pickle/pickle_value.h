#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/formats/dtype.h"
#include "core/formats/tensor_layout.h"

namespace specdec {

/// A tensor that a pickle describes: a view of a storage, which is a file of its own.
struct PickledTensor {
  TensorLayout layout;
  std::string storage;           ///< its key: the name of the file with its values
  int64_t offset = 0;            ///< of the first value, in values
  std::vector<int64_t> strides;  ///< in values, one for each dimension
};

/// The objects of a pickle.
namespace pickle {

struct Value;
using Values = std::vector<const Value*>;

struct Nothing {};
struct Mark {};
/// A class or function, as "module name".
struct Global {
  std::string name;
};
struct Sequence {
  Values items;
};
struct Dictionary {
  std::vector<std::pair<const Value*, const Value*>> items;
};
/// Something of a class whose code is not run: a tensor that torchao makes of others, an enum, a
/// layout.
struct Object {
  std::string name;                  ///< of the class, without its module
  const Value* arguments = nullptr;  ///< that it is made of
  const Value* state = nullptr;      ///< its attributes, where there are some
  bool is_tensor = false;            ///< made of the tensors among its attributes
};
struct Storage {
  std::optional<DType> dtype;  ///< none: bytes, whose type the tensor says
  std::string key;
};

/// An object of the pickle. All are kept until the end, by the machine, so that cycles and deep
/// nesting are of no account.
struct Value {
  std::variant<Nothing, Mark, bool, int64_t, double, std::string, Global, Sequence, Dictionary,
               Object, Storage, PickledTensor>
      is;
};

/// What a value is, for messages.
std::string kind_of(const Value& value);
/// Throws the WeightsError of a pickle in the file `where`.
[[noreturn]] void fail(const std::string& where, const std::string& problem);

/// The storage of a persistent id: ("storage", class, key, device, values).
Storage storage_of(const Value& id, const std::string& where);
/// What a function or class that torch.save names makes of its arguments: an empty OrderedDict, a
/// tensor, a parameter (torch/_utils.py), an object of torchao. All others are a WeightsError that
/// names them.
Value made_by(const Value& function, const Value& arguments, const std::string& where);

}  // namespace pickle
}  // namespace specdec
