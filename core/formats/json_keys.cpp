#include "core/formats/json_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr int64_t kLargestSize = int64_t{1} << 24;

}  // namespace

json parse_json_object(const std::string& text, const std::string& where) {
  json parsed = parse_strict_json(text, where);
  if (!parsed.is_object()) {
    throw WeightsError(fmt::format("{}: should hold a JSON object.", where));
  }
  return parsed;
}

std::string describe_json(const json& value) {
  if (value.is_structured()) {
    return value.is_array() ? "a list" : "an object";
  }
  constexpr size_t kMostShown = 80;  // bytes
  const std::string text = value.dump();
  return text.size() <= kMostShown ? text : value.dump(-1, ' ', true).substr(0, kMostShown) + "...";
}

const json& json_member(const json& object, const char* key) {
  static const json none;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? none : *found;
}

JsonKeys::JsonKeys(const json& object, std::string where, KeyNames names)
    : object_(object), where_(std::move(where)), names_(std::move(names)) {}

bool JsonKeys::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

bool JsonKeys::contains(const char* key) const { return object_.contains(key); }

std::vector<std::string> JsonKeys::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    names.push_back(name);
  }
  return names;
}

const json& JsonKeys::at(const char* key) const {
  if (!has(key)) {
    fail(key, contains(key) ? "is missing: it is null" : "is missing");
  }
  return object_[key];
}

int64_t JsonKeys::integer(const char* key, std::optional<int64_t> fallback) const {
  if (!has(key) && fallback) {
    return *fallback;
  }
  const json& value = at(key);
  if (!value.is_number_integer()) {
    fail(key, fmt::format("should be an integer, but is {}", describe_json(value)));
  }
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (value.is_number_unsigned() ? value.get<uint64_t>() > static_cast<uint64_t>(kLargest)
                                 : value.get<int64_t>() < -kLargest) {
    fail(key, fmt::format("is out of range: {}", describe_json(value)));
  }
  return value.get<int64_t>();
}

int64_t JsonKeys::positive(const char* key, std::optional<int64_t> fallback) const {
  const int64_t value = integer(key, fallback);
  if (value < 1 || value > kLargestSize) {
    fail(key, fmt::format("should lie in 1 to {}, but is {}", kLargestSize, value));
  }
  return value;
}

double JsonKeys::number(const char* key, std::optional<double> fallback) const {
  if (!has(key) && fallback) {
    return *fallback;
  }
  const json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    fail(key, fmt::format("should be a number, but is {}", describe_json(value)));
  }
  const auto number = value.get<double>();
  const double size = std::abs(number);
  if (size > std::numeric_limits<float>::max() ||
      (size > 0.0 && size < std::numeric_limits<float>::min())) {
    fail(key, fmt::format("is out of range: {}; no float32 holds it", value.dump()));
  }
  return number;
}

double JsonKeys::positive_number(const char* key, std::optional<double> fallback) const {
  const double value = number(key, fallback);
  if (!(value > 0.0)) {
    fail(key, fmt::format("should be positive, but is {}", value));
  }
  return value;
}

double JsonKeys::rms_norm_eps() const {
  constexpr const char* kKey = "rms_norm_eps";
  const double value = positive_number(kKey, 1e-6);
  if (value > 1.0) {
    fail(kKey, fmt::format("should be at most 1, but is {}", value));
  }
  return value;
}

double JsonKeys::soft_cap(const char* key, double release_value) const {
  if (!contains(key)) {
    return release_value;
  }
  return has(key) ? positive_number(key) : 0.0;
}

bool JsonKeys::boolean(const char* key, bool fallback) const {
  if (!has(key)) {
    return fallback;
  }
  if (!at(key).is_boolean()) {
    fail(key, fmt::format("should be true or false, but is {}", describe_json(at(key))));
  }
  return at(key).get<bool>();
}

std::string JsonKeys::text(const char* key, const std::string& fallback) const {
  if (!has(key)) {
    return fallback;
  }
  if (!at(key).is_string()) {
    fail(key, fmt::format("should be a string, but is {}", describe_json(at(key))));
  }
  return at(key).get<std::string>();
}

JsonKeys JsonKeys::object(const char* key) const {
  if (!at(key).is_object()) {
    fail(key, "should be an object");
  }
  return {at(key), where_ + ": " + key, names_};
}

void JsonKeys::fail(const std::string& key, const std::string& problem) const {
  const auto found = names_.find(key);
  throw WeightsError(
      fmt::format("{}: '{}' {}.", where_, found == names_.end() ? key : found->second, problem));
}

}  // namespace specdec
