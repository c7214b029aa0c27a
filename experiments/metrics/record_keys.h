#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace specdec {

/// Reads by type the keys of an object in a file that a program wrote: records of runs, profiles,
/// answers. What is missing or wrong is an Error that names the key with those around it
/// ("'load.seconds' must be ..."); who reads the file puts its name and line before it. The JSON
/// library would cut 1.5 to 1 and turn 1e30 into any integer. Borrows the object.
class RecordKeys {
 public:
  /// Throws Error where `object` is none. `path` is the key that it stands under; "" = the record.
  explicit RecordKeys(const nlohmann::json& object, std::string path = "");

  bool has(const char* key) const;
  const nlohmann::json& at(const char* key) const;
  std::string text(const char* key, const std::optional<std::string>& fallback = {}) const;
  bool flag(const char* key) const;
  /// A whole number of at least 0 and below 2^53, which Python may have written as 3.0.
  int64_t count(const char* key, std::optional<int64_t> fallback = {}) const;
  double number(const char* key, std::optional<double> fallback = {}) const;
  /// A number of at least 0.
  double amount(const char* key, std::optional<double> fallback = {}) const;

  RecordKeys object(const char* key) const;
  const nlohmann::json& list(const char* key) const;
  /// A list of objects.
  std::vector<RecordKeys> objects(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  std::vector<double> numbers(const char* key) const;
  /// The numbers; none where the key is missing, as in files of older versions.
  std::vector<double> numbers_if_there(const char* key) const;
  /// Counts. `size`: how many the list must hold.
  std::vector<int64_t> counts(const char* key, std::optional<size_t> size = {}) const;
  std::vector<Token> tokens(const char* key) const;
  /// A list of lists of counts.
  std::vector<std::vector<int64_t>> count_lists(const char* key) const;

  [[noreturn]] void fail(const std::string& key, const std::string& problem) const;

 private:
  std::string path_of(const std::string& key) const;

  const nlohmann::json* object_;
  std::string path_;
};

/// The ids of a list of counts; `keys` and `key` name it where one is too large.
std::vector<Token> token_ids(const std::vector<int64_t>& counts, const RecordKeys& keys,
                             const char* key);

}  // namespace specdec
