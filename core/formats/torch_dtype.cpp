#include "core/formats/torch_dtype.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/formats/json_keys.h"

namespace specdec {
namespace {

/// torch.dtype's names, old ones (half) and those without tensors here (uint4) too.
constexpr std::string_view kTorchTypes[] = {"float32",
                                            "float",
                                            "float64",
                                            "double",
                                            "float16",
                                            "half",
                                            "bfloat16",
                                            "complex32",
                                            "chalf",
                                            "complex64",
                                            "cfloat",
                                            "complex128",
                                            "cdouble",
                                            "float8_e4m3fn",
                                            "float8_e4m3fnuz",
                                            "float8_e5m2",
                                            "float8_e5m2fnuz",
                                            "float8_e8m0fnu",
                                            "bool",
                                            "float4_e2m1fn_x2",
                                            "int64",
                                            "long",
                                            "int32",
                                            "int",
                                            "int16",
                                            "short",
                                            "int8",
                                            "uint8",
                                            "uint16",
                                            "uint32",
                                            "uint64",
                                            "qint8",
                                            "quint8",
                                            "qint32",
                                            "quint4x2",
                                            "quint2x4",
                                            "int1",
                                            "int2",
                                            "int3",
                                            "int4",
                                            "int5",
                                            "int6",
                                            "int7",
                                            "uint1",
                                            "uint2",
                                            "uint3",
                                            "uint4",
                                            "uint5",
                                            "uint6",
                                            "uint7",
                                            "bits8",
                                            "bits16",
                                            "bits1x8",
                                            "bits2x4",
                                            "bits4x2"};

void check_name(const JsonKeys& keys, const char* key, const nlohmann::json& value) {
  if (!value.is_string()) {
    keys.fail(key, "should be a string, but is " + describe_json(value));
  }
  std::string_view name = value.get_ref<const std::string&>();
  if (name.starts_with("torch.")) {  // as Python prints them
    name.remove_prefix(std::string_view("torch.").size());
  }
  const bool is_said = !name.empty();  // as in configs written where no type was known
  if (is_said &&
      std::find(std::begin(kTorchTypes), std::end(kTorchTypes), name) == std::end(kTorchTypes)) {
    keys.fail(key, fmt::format("is {}, which is no type of PyTorch's; known are float32, bfloat16, "
                               "float16, float64, float8_e4m3fn and others",
                               describe_json(value)));
  }
}

/// "" for a key that is missing, and for an object of the parts' types.
std::string type_name(const JsonKeys& keys, const char* key) {
  if (!keys.has(key)) {
    return "";
  }
  const nlohmann::json& value = keys.at(key);
  if (!value.is_object()) {
    check_name(keys, key, value);
    return value.get<std::string>();
  }
  for (const nlohmann::json& part : value) {
    check_name(keys, key, part);
  }
  return "";
}

}  // namespace

std::string torch_dtype(const JsonKeys& keys) {
  const std::string old_name = type_name(keys, "torch_dtype");
  const std::string name = type_name(keys, "dtype");
  return keys.has("dtype") ? name : old_name;
}

}  // namespace specdec
