#include "core/formats/pickle/pickle_object.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <variant>

#include "core/formats/json_text.h"

namespace specdec::pickle {
namespace {

using nlohmann::json;

constexpr int kMostNested = 3;  ///< an activation's wrapper, a tensor, its layout
constexpr size_t kLongestList = 32;
constexpr size_t kLongestText = 256;
constexpr size_t kPerValue = 8;  ///< bytes that anything takes
constexpr size_t kPerTensor = 64;

/// Takes bytes of what may still be made. A text that the pickle holds once may be recalled often.
void take(Flattening& into, size_t bytes) {
  if (bytes > into.bytes) {
    fail(into.where,
         "its descriptions of tensors are far longer than itself: the file is damaged, copy or "
         "download it again");
  }
  into.bytes -= bytes;
}

/// The name of a class or an attribute.
const std::string& checked_name(const std::string& name, Flattening& into) {
  if (name.size() > kLongestText) {
    fail(into.where, fmt::format("a name in a tensor has {} bytes: the file is damaged, copy or "
                                 "download it again",
                                 name.size()));
  }
  take(into, name.size());
  return name;
}

/// Makes JSON of a number, truth value, short text or type; null of what is none.
struct Scalars {
  json operator()(bool is) const { return is; }
  json operator()(int64_t number) const { return number; }
  json operator()(double number) const { return number; }
  json operator()(const std::string& text) const { return short_text(text); }
  json operator()(const Global& global) const {
    constexpr std::string_view kTorch = "torch ";
    return global.name.starts_with(kTorch)
               ? json{{"_type", "torch.dtype"},
                      {"_data", short_text(std::string_view(global.name).substr(kTorch.size()))}}
               : json();
  }
  template <class Other>
  json operator()(const Other& /*other*/) const {
    return {};
  }

  json short_text(std::string_view text) const {
    if (text.size() > kLongestText) {
      return {};
    }
    take(into, text.size());
    return text;
  }

  Flattening& into;
};

json scalar_json(const Value& value, Flattening& into) {
  take(into, kPerValue);
  return std::visit(Scalars{into}, value.is);
}

json list_json(const Sequence& sequence, Flattening& into) {
  json list = json::array();
  for (const Value* item : sequence.items) {
    list.push_back(scalar_json(*item, into));
  }
  return list;
}

/// An enum by its value, an object such as a layout by its attributes.
json object_json(const Object& object, Flattening& into) {
  json data = json::object();
  const auto* made_of = std::get_if<Sequence>(&object.arguments->is);
  if (made_of != nullptr && made_of->items.size() == 1) {
    data = scalar_json(*made_of->items.front(), into);
  }
  const auto* state =
      object.state == nullptr ? nullptr : std::get_if<Dictionary>(&object.state->is);
  if (state != nullptr && state->items.size() <= kLongestList) {
    data = json::object();
    for (const auto& [key, value] : state->items) {
      if (const auto* name = std::get_if<std::string>(&key->is)) {
        data[checked_name(*name, into)] = scalar_json(*value, into);
      }
    }
  }
  take(into, kPerValue);
  return {{"_type", checked_name(object.name, into)}, {"_data", data}};
}

/// The shape that a tensor's class is given: (class, dtype, shape, ...).
std::optional<json> shape_of(const Object& object, Flattening& into) {
  const auto* arguments = std::get_if<Sequence>(&object.arguments->is);
  if (arguments == nullptr || arguments->items.size() < 3) {
    return std::nullopt;
  }
  const auto* shape = std::get_if<Sequence>(&arguments->items[2]->is);
  return shape == nullptr || shape->items.size() > kLongestList
             ? std::nullopt
             : std::optional(list_json(*shape, into));
}

json flattened(const std::string& prefix, const Object& object, int depth, Flattening& into) {
  const std::string& type = checked_name(object.name, into);
  if (depth == kMostNested) {
    fail(into.where, fmt::format("a tensor of class {} is within {} others", type, depth));
  }
  json data = json::object();
  json names = json::array();
  if (const auto shape = shape_of(object, into)) {
    data["shape"] = *shape;
  }
  const auto& attributes = std::get<Dictionary>(object.state->is).items;
  if (attributes.size() > kLongestList) {
    fail(into.where,
         fmt::format("a tensor of class {} has {} attributes", type, attributes.size()));
  }
  for (const auto& [key, value] : attributes) {
    if (!std::holds_alternative<std::string>(key->is)) {
      continue;
    }
    const std::string& name = checked_name(std::get<std::string>(key->is), into);
    const auto* list = std::get_if<Sequence>(&value->is);
    const auto* part = std::get_if<Object>(&value->is);
    if (const auto* tensor = std::get_if<PickledTensor>(&value->is)) {
      take(into, prefix.size() + kPerTensor);
      into.add(*tensor, prefix + name);
      names.push_back(name);
    } else if (part != nullptr && part->is_tensor) {
      take(into, prefix.size());
      data[name] = flattened(prefix + name + "_", *part, depth + 1, into);
    } else if (part != nullptr) {
      data[name] = object_json(*part, into);
    } else if (list == nullptr || list->items.size() <= kLongestList) {
      data[name] = list == nullptr ? scalar_json(*value, into) : list_json(*list, into);
    }
  }
  return {{"_type", type}, {"_data", data}, {"_tensor_data_names", names}};
}

}  // namespace

std::string flatten(const std::string& name, const Object& object, Flattening& into) {
  take(into, name.size() + kPerTensor);
  const size_t dot = name.rfind('.');
  const std::string prefix = dot == std::string::npos
                                 ? "_" + name + "_"
                                 : name.substr(0, dot + 1) + "_" + name.substr(dot + 1) + "_";
  return json_text(flattened(prefix, object, 0, into));
}

}  // namespace specdec::pickle
