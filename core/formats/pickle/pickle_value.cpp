#include "core/formats/pickle/pickle_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/error.h"

namespace specdec::pickle {
namespace {

constexpr size_t kMostDimensions = 64;
constexpr size_t kLongestKey = 64;  ///< torch.save counts: 0, 1, ...

const std::map<std::string_view, DType>& dtypes() {
  static const std::map<std::string_view, DType> known = {
      {"torch DoubleStorage", DType::kF64},   {"torch FloatStorage", DType::kF32},
      {"torch HalfStorage", DType::kF16},     {"torch BFloat16Storage", DType::kBF16},
      {"torch LongStorage", DType::kI64},     {"torch IntStorage", DType::kI32},
      {"torch ShortStorage", DType::kI16},    {"torch CharStorage", DType::kI8},
      {"torch ByteStorage", DType::kU8},      {"torch BoolStorage", DType::kBool},
      {"torch float8_e4m3fn", DType::kF8E4M3}};
  return known;
}

template <class Kind>
const Kind& argument(const Value& arguments, size_t index, const char* what,
                     const std::string& where) {
  const auto* all = std::get_if<Sequence>(&arguments.is);
  const Kind* found = all != nullptr && index < all->items.size()
                          ? std::get_if<Kind>(&all->items[index]->is)
                          : nullptr;
  if (found == nullptr) {
    fail(where, fmt::format("{} is not where torch.save puts it", what));
  }
  return *found;
}

std::vector<int64_t> integers(const Sequence& sequence, const std::string& where) {
  if (sequence.items.size() > kMostDimensions) {
    fail(where, fmt::format("a tensor has {} dimensions", sequence.items.size()));
  }
  std::vector<int64_t> numbers;
  for (const Value* item : sequence.items) {
    const auto* number = std::get_if<int64_t>(&item->is);
    if (number == nullptr || *number < 0) {
      fail(where, "a shape or stride is no natural number");
    }
    numbers.push_back(*number);
  }
  return numbers;
}

/// (storage, offset, shape, strides, requires_grad, hooks), and for v3 the dtype.
PickledTensor tensor_of(const Value& arguments, bool names_dtype, const std::string& where) {
  const auto& values = argument<Storage>(arguments, 0, "a tensor's storage", where);
  // One after the other: of a braced list that throws half-way GCC 12 frees the first part twice.
  PickledTensor tensor;
  tensor.layout.shape =
      integers(argument<Sequence>(arguments, 2, "a tensor's shape", where), where);
  tensor.storage = values.key;
  tensor.offset = argument<int64_t>(arguments, 1, "a tensor's offset", where);
  tensor.strides = integers(argument<Sequence>(arguments, 3, "a tensor's strides", where), where);
  std::optional<DType> dtype = values.dtype;
  if (names_dtype) {
    const std::string& name = argument<Global>(arguments, 6, "a tensor's dtype", where).name;
    const auto found = dtypes().find(name);
    if (found == dtypes().end()) {
      fail(where, fmt::format("values of the type {} are not supported", name));
    }
    dtype = found->second;
  }
  if (!dtype || tensor.strides.size() != tensor.layout.shape.size()) {
    fail(where, "a tensor has no type, or not as many strides as dimensions");
  }
  tensor.layout.dtype = *dtype;
  return tensor;
}

/// A class's or function's name without its module.
std::string last_name(const std::string& name) {
  return name.substr(name.find_last_of(" .") + 1);  // npos + 1 = 0
}

/// _rebuild_from_type_v2 of torch/_tensor.py: (function, class, arguments, attributes).
Object tensor_object(const Value& arguments, const std::string& where) {
  const auto& type = argument<Global>(arguments, 1, "a tensor's class", where);
  (void)argument<Sequence>(arguments, 2, "what a tensor is made of", where);
  (void)argument<Dictionary>(arguments, 3, "a tensor's attributes", where);
  const Values& items = std::get<Sequence>(arguments.is).items;
  return {
      .name = last_name(type.name), .arguments = items[2], .state = items[3], .is_tensor = true};
}

/// Whether a class or function makes an object whose parts alone matter.
bool makes_object(const std::string& name) {
  return name.starts_with("torchao.") || name == "torch device" ||
         name == "torch.serialization _get_layout";
}

}  // namespace

std::string kind_of(const Value& value) {
  struct Names {
    std::string operator()(Nothing) const { return "None"; }
    std::string operator()(Mark) const { return "nothing"; }
    std::string operator()(bool) const { return "a truth value"; }
    std::string operator()(int64_t) const { return "an integer"; }
    std::string operator()(double) const { return "a number"; }
    std::string operator()(const std::string&) const { return "a string"; }
    std::string operator()(const Global& global) const { return "the object " + global.name; }
    std::string operator()(const Sequence&) const { return "a list"; }
    std::string operator()(const Dictionary&) const { return "a dictionary"; }
    std::string operator()(const Object& object) const { return "the object " + object.name; }
    std::string operator()(const Storage&) const { return "a storage"; }
    std::string operator()(const PickledTensor&) const { return "a tensor"; }
  };
  return std::visit(Names{}, value.is);
}

void fail(const std::string& where, const std::string& problem) {
  throw WeightsError(fmt::format("{}: its pickle cannot be read: {}.", where, problem));
}

Storage storage_of(const Value& id, const std::string& where) {
  const std::string& name = argument<Global>(id, 1, "a storage's type", where).name;
  const auto found = dtypes().find(name);
  if (found == dtypes().end() && name != "torch.storage UntypedStorage") {
    fail(where, fmt::format("values of the type {} are not supported", name));
  }
  const std::string& key = argument<std::string>(id, 2, "a storage's key", where);
  if (key.size() > kLongestKey) {
    fail(where, "a storage's key is too long");
  }
  return {found != dtypes().end() ? std::optional(found->second) : std::nullopt, key};
}

Value made_by(const Value& function, const Value& arguments, const std::string& where) {
  const auto* global = std::get_if<Global>(&function.is);
  const std::string name = global != nullptr ? global->name : kind_of(function);
  if (name == "collections OrderedDict") {
    const auto* given = std::get_if<Sequence>(&arguments.is);
    if (given == nullptr || !given->items.empty()) {
      fail(where, "an OrderedDict is made of something");
    }
    return {Dictionary{}};
  }
  if (name == "torch._utils _rebuild_tensor_v2" || name == "torch._utils _rebuild_tensor_v3") {
    return {tensor_of(arguments, name.back() == '3', where)};
  }
  if (name == "torch._utils _rebuild_parameter") {
    return {argument<PickledTensor>(arguments, 0, "a parameter's tensor", where)};
  }
  if (name == "torch._tensor _rebuild_from_type_v2") {
    return {tensor_object(arguments, where)};
  }
  if (name == "torch Size") {
    return {argument<Sequence>(arguments, 0, "a shape", where)};
  }
  if (makes_object(name)) {
    return {Object{.name = last_name(name), .arguments = &arguments}};
  }
  std::string shown = name;  // of a damaged file it may be anything
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  fail(where, fmt::format(
                  "it makes a '{}', and only dictionaries of tensors are read. Save the state dict "
                  "alone: torch.save(model.state_dict(), FILE)",
                  shown));
}

}  // namespace specdec::pickle
