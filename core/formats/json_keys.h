#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace specdec {

/// Parses a text that should hold a JSON object. Throws WeightsError naming `where`.
nlohmann::json parse_json_object(const std::string& text, const std::string& where);

/// A value as a message shows it: scalars as they are, long texts cut, "a list", "an object".
std::string describe_json(const nlohmann::json& value);

/// The member of a key; null where there is none, or where `object` is no object.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key);

/// What a file calls keys whose object was made of it; others have their own name.
using KeyNames = std::map<std::string, std::string>;

/// Reads the keys of one JSON object of a checkpoint by type; every complaint is a WeightsError
/// that names the file and the key. A key that is null counts as missing. Borrows the object.
class JsonKeys {
 public:
  JsonKeys(const nlohmann::json& object, std::string where, KeyNames names = {});

  bool has(const char* key) const;
  /// True for a key that is null, too.
  bool contains(const char* key) const;
  /// All keys, null ones too.
  std::vector<std::string> names() const;
  const nlohmann::json& at(const char* key) const;
  int64_t integer(const char* key, std::optional<int64_t> fallback = std::nullopt) const;
  /// 1 to 2^24: sizes.
  int64_t positive(const char* key, std::optional<int64_t> fallback = std::nullopt) const;
  /// A number that float32 holds: finite there, and 0 only where it is 0.
  double number(const char* key, std::optional<double> fallback = std::nullopt) const;
  double positive_number(const char* key, std::optional<double> fallback = std::nullopt) const;
  /// The key rms_norm_eps, 1e-6 where it is missing: above 0 and at most 1.
  double rms_norm_eps() const;
  /// A soft cap: 0 = none. Null switches it off, a missing key means the release's value.
  double soft_cap(const char* key, double release_value) const;
  bool boolean(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  /// The object under a key.
  JsonKeys object(const char* key) const;

  [[noreturn]] void fail(const std::string& key, const std::string& problem) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  KeyNames names_;
};

}  // namespace specdec
