#include "core/formats/pickle_object.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <variant>

#include "core/formats/json_text.h"

namespace specdec::pickle {
namespace {

using nlohmann::json;
using AddTensor = std::function<void(const PickledTensor&, const std::string&)>;

constexpr int kMostNested = 3;  ///< an activation's wrapper, a tensor, its layout
constexpr size_t kLongestList = 32;

/// Makes JSON of a number, truth value, text or type; null of what is none.
struct Scalars {
  json operator()(bool is) const { return is; }
  json operator()(int64_t number) const { return number; }
  json operator()(double number) const { return number; }
  json operator()(const std::string& text) const { return text; }
  json operator()(const Global& global) const {
    constexpr std::string_view kTorch = "torch ";
    return global.name.starts_with(kTorch)
               ? json{{"_type", "torch.dtype"}, {"_data", global.name.substr(kTorch.size())}}
               : json();
  }
  template <class Other>
  json operator()(const Other& /*other*/) const {
    return {};
  }
};

json scalar_json(const Value& value) { return std::visit(Scalars{}, value.is); }

json list_json(const Sequence& sequence) {
  json list = json::array();
  for (const Value* item : sequence.items) {
    list.push_back(scalar_json(*item));
  }
  return list;
}

/// An enum by its value, an object such as a layout by its attributes.
json object_json(const Object& object) {
  json data = json::object();
  const auto* made_of = std::get_if<Sequence>(&object.arguments->is);
  if (made_of != nullptr && made_of->items.size() == 1) {
    data = scalar_json(*made_of->items.front());
  }
  const auto* state =
      object.state == nullptr ? nullptr : std::get_if<Dictionary>(&object.state->is);
  if (state != nullptr && state->items.size() <= kLongestList) {
    data = json::object();
    for (const auto& [key, value] : state->items) {
      if (const auto* name = std::get_if<std::string>(&key->is)) {
        data[*name] = scalar_json(*value);
      }
    }
  }
  return {{"_type", object.name}, {"_data", data}};
}

/// The shape that a tensor's class is given: (class, dtype, shape, ...).
std::optional<json> shape_of(const Object& object) {
  const auto* arguments = std::get_if<Sequence>(&object.arguments->is);
  if (arguments == nullptr || arguments->items.size() < 3) {
    return std::nullopt;
  }
  const auto* shape = std::get_if<Sequence>(&arguments->items[2]->is);
  return shape == nullptr || shape->items.size() > kLongestList ? std::nullopt
                                                                : std::optional(list_json(*shape));
}

json flattened(const std::string& prefix, const Object& object, int depth, const AddTensor& add,
               const std::string& where) {
  if (depth == kMostNested) {
    fail(where, fmt::format("a tensor of class {} is within {} others", object.name, depth));
  }
  json data = json::object();
  json names = json::array();
  if (const auto shape = shape_of(object)) {
    data["shape"] = *shape;
  }
  const auto& attributes = std::get<Dictionary>(object.state->is).items;
  if (attributes.size() > kLongestList) {
    fail(where,
         fmt::format("a tensor of class {} has {} attributes", object.name, attributes.size()));
  }
  for (const auto& [key, value] : attributes) {
    const auto* name = std::get_if<std::string>(&key->is);
    if (name == nullptr) {
      continue;
    }
    const auto* list = std::get_if<Sequence>(&value->is);
    const auto* part = std::get_if<Object>(&value->is);
    if (const auto* tensor = std::get_if<PickledTensor>(&value->is)) {
      add(*tensor, prefix + *name);
      names.push_back(*name);
    } else if (part != nullptr && part->is_tensor) {
      data[*name] = flattened(prefix + *name + "_", *part, depth + 1, add, where);
    } else if (part != nullptr) {
      data[*name] = object_json(*part);
    } else if (list == nullptr || list->items.size() <= kLongestList) {
      data[*name] = list == nullptr ? scalar_json(*value) : list_json(*list);
    }
  }
  return {{"_type", object.name}, {"_data", data}, {"_tensor_data_names", names}};
}

}  // namespace

std::string flatten(const std::string& name, const Object& object, const AddTensor& add,
                    const std::string& where) {
  const size_t dot = name.rfind('.');
  const std::string prefix = dot == std::string::npos
                                 ? "_" + name + "_"
                                 : name.substr(0, dot + 1) + "_" + name.substr(dot + 1) + "_";
  return json_text(flattened(prefix, object, 0, add, where));
}

}  // namespace specdec::pickle
