#include "experiments/metrics/record_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/json_keys.h"

namespace specdec {
namespace {

using RecordJson = nlohmann::json;

constexpr int64_t kLargestCount = int64_t{1} << 53;  // what a double counts to

std::optional<int64_t> count_of(const RecordJson& value) {
  // As a double: near 2^53 it is exact, and farther away it stays outside.
  const double number = value.is_number() ? value.get<double>() : -1.0;
  const bool counts =
      number >= 0.0 && number < static_cast<double>(kLargestCount) && number == std::floor(number);
  return counts ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
}

std::optional<double> number_of(const RecordJson& value) {
  if (value.is_number() && std::isfinite(value.get<double>())) {
    return value.get<double>();
  }
  return std::nullopt;
}

std::optional<std::string> text_of_record(const RecordJson& value) {
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

constexpr const char* kCount = "a whole number of at least 0";

/// What `read` makes of each entry of a list.
template <class T, class Read>
std::vector<T> entries_of(const RecordKeys& keys, const char* key, const char* kind, Read read) {
  std::vector<T> entries;
  for (const RecordJson& entry : keys.list(key)) {
    if (auto value = read(entry)) {
      entries.push_back(*std::move(value));
    } else {
      keys.fail(key, fmt::format("must hold only {}, but holds {}", kind, describe_json(entry)));
    }
  }
  return entries;
}

}  // namespace

RecordKeys::RecordKeys(const RecordJson& object, std::string path)
    : object_(&object), path_(std::move(path)) {
  if (!object.is_object()) {
    throw Error(fmt::format("{} must be an object, but is {}",
                            path_.empty() ? "it" : fmt::format("'{}'", path_),
                            describe_json(object)));
  }
}

bool RecordKeys::has(const char* key) const { return object_->contains(key); }

const RecordJson& RecordKeys::at(const char* key) const {
  const auto found = object_->find(key);
  if (found == object_->end()) {
    throw Error(fmt::format("the key '{}' is missing", path_of(key)));
  }
  return *found;
}

std::string RecordKeys::text(const char* key, const std::optional<std::string>& fallback) const {
  if (fallback && !has(key)) {
    return *fallback;
  }
  const auto value = text_of_record(at(key));
  if (!value) {
    fail(key, fmt::format("must be a text, but is {}", describe_json(at(key))));
  }
  return *value;
}

bool RecordKeys::flag(const char* key) const {
  if (!at(key).is_boolean()) {
    fail(key, fmt::format("must be true or false, but is {}", describe_json(at(key))));
  }
  return at(key).get<bool>();
}

int64_t RecordKeys::count(const char* key, std::optional<int64_t> fallback) const {
  if (fallback && !has(key)) {
    return *fallback;
  }
  const auto value = count_of(at(key));
  if (!value) {
    fail(key, fmt::format("must be {}, but is {}", kCount, describe_json(at(key))));
  }
  return *value;
}

double RecordKeys::number(const char* key, std::optional<double> fallback) const {
  if (fallback && !has(key)) {
    return *fallback;
  }
  const auto value = number_of(at(key));
  if (!value) {
    fail(key, fmt::format("must be a number, but is {}", describe_json(at(key))));
  }
  return *value;
}

double RecordKeys::amount(const char* key, std::optional<double> fallback) const {
  const double value = number(key, fallback);
  if (value < 0.0) {
    fail(key, fmt::format("must be at least 0, but is {}", value));
  }
  return value;
}

RecordKeys RecordKeys::object(const char* key) const { return RecordKeys(at(key), path_of(key)); }

const RecordJson& RecordKeys::list(const char* key) const {
  if (!at(key).is_array()) {
    fail(key, fmt::format("must be a list, but is {}", describe_json(at(key))));
  }
  return at(key);
}

std::vector<RecordKeys> RecordKeys::objects(const char* key) const {
  std::vector<RecordKeys> all;
  for (const RecordJson& entry : list(key)) {
    all.emplace_back(entry, fmt::format("{}[{}]", path_of(key), all.size()));
  }
  return all;
}

std::vector<std::string> RecordKeys::texts(const char* key) const {
  return entries_of<std::string>(*this, key, "texts", text_of_record);
}

std::vector<double> RecordKeys::numbers(const char* key) const {
  return entries_of<double>(*this, key, "numbers", number_of);
}

std::vector<double> RecordKeys::numbers_if_there(const char* key) const {
  return has(key) ? numbers(key) : std::vector<double>();
}

std::vector<int64_t> RecordKeys::counts(const char* key, std::optional<size_t> size) const {
  auto all = entries_of<int64_t>(*this, key, "whole numbers of at least 0", count_of);
  if (size && all.size() != *size) {
    fail(key, fmt::format("must have {} entries, but has {}", *size, all.size()));
  }
  return all;
}

std::vector<Token> RecordKeys::tokens(const char* key) const {
  return token_ids(counts(key), *this, key);
}

std::vector<std::vector<int64_t>> RecordKeys::count_lists(const char* key) const {
  std::vector<std::vector<int64_t>> lists;
  for (size_t i = 0; i < list(key).size(); ++i) {
    const std::string name = std::to_string(i);
    const RecordJson one = {{name, list(key)[i]}};
    lists.push_back(RecordKeys(one, path_of(key)).counts(name.c_str()));
  }
  return lists;
}

void RecordKeys::fail(const std::string& key, const std::string& problem) const {
  throw Error(fmt::format("'{}' {}", path_of(key), problem));
}

std::string RecordKeys::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

std::vector<Token> token_ids(const std::vector<int64_t>& counts, const RecordKeys& keys,
                             const char* key) {
  std::vector<Token> ids;
  for (const int64_t id : counts) {
    if (id > std::numeric_limits<Token>::max()) {
      keys.fail(key, fmt::format("holds {}, which is no token id", id));
    }
    ids.push_back(static_cast<Token>(id));
  }
  return ids;
}

}  // namespace specdec
